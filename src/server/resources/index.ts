/** Every route of the API. A new resource is a file here and a line below. */
import type { Route } from "../routes.ts";
import { metaRoutes } from "./meta.ts";
import { runRoutes } from "./run.ts";
import { runsRoutes } from "./runs.ts";
import { sessionRoutes } from "./sessions.ts";
import { verbRoutes } from "./verbs.ts";
import { waitRoutes } from "./waits.ts";
import { workflowRoutes } from "./workflows.ts";

export const ROUTES: readonly Route[] = [
  ...metaRoutes,
  ...sessionRoutes,
  ...workflowRoutes,
  ...runsRoutes,
  ...runRoutes,
  ...verbRoutes,
  ...waitRoutes,
];
