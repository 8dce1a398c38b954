/** Watches the catalog for whoever listens, so that clients hear when tools come and go (DESIGN §12). */
import type { McpService } from "./service.ts";

/** How often the folders of workflows are looked at, ms. */
const LOOK_EVERY_MS = 2_000;

/** Calls back after each new publication; answers how to stop. */
export function watchPublications(service: McpService, changed: () => void): () => void {
  let known: number | undefined;
  let looking = false;
  const look = async (): Promise<void> => {
    if (looking) return;
    looking = true;
    try {
      const { publication_revision } = await service.holdfast.workflows.reload();
      if (known !== undefined && known !== publication_revision) changed();
      known = publication_revision;
    } catch (error) {
      service.log?.("warn", "the catalog could not be looked at", { error });
    } finally {
      looking = false;
    }
  };
  void look();
  const timer = setInterval(() => void look(), LOOK_EVERY_MS);
  timer.unref();
  return () => clearInterval(timer);
}
