// Owns what must be true before `npm start` and `npm test`: the right Node, and packages installed as the lock says
// . Runs on whatever Node is there, so: built-ins only, and no syntax newer than modules themselves.
import child from "child_process";
import fs from "fs";
import path from "path";
import url from "url";

var STORE_STATUS = 5; // "store or server unavailable" of the command line: nothing wrong was asked, it cannot be done here
var LOCK_WAIT_MS = 10 * 60 * 1000;
var root = path.dirname(path.dirname(url.fileURLToPath(import.meta.url)));
var wantDev = process.argv.indexOf("--dev") !== -1;

main();

function main() {
  if (!nodeIsNewEnough(process.versions.node)) {
    fail("Holdfast needs Node 20.19 or newer; this is " + process.versions.node + ".", 2);
  }
  var missing = whatIsMissing();
  if (missing === "") {
    say("Holdfast is ready on Node " + process.versions.node + ".");
    return;
  }
  say("Holdfast installs its " + (wantDev ? "" : "run-time ") + "packages first: " + missing + ".");
  refuseReadOnly(missing);
  var release = takeTurn();
  // Another process may have installed them while this one waited for its turn.
  if (whatIsMissing() !== "") install(release);
  release();
}

function nodeIsNewEnough(version) {
  var parts = version.split(".");
  var major = Number(parts[0]);
  return major > 20 || (major === 20 && Number(parts[1]) >= 19);
}

/** Says in words what differs from the lock, or "" when nothing does. */
function whatIsMissing() {
  var wanted = packagesOf("package-lock.json");
  var there = packagesOf(path.join("node_modules", ".package-lock.json"));
  if (wanted === undefined) fail("Cannot install: package-lock.json is missing or damaged; restore it with git.", 2);
  if (there === undefined) return "there is no node_modules folder yet";
  var names = Object.keys(wanted);
  for (var i = 0; i < names.length; i++) {
    var name = names[i];
    var entry = wanted[name];
    // Optional packages are those of other platforms; development tools are not needed to run.
    if (name === "" || entry.optional || entry.devOptional) continue;
    if (entry.dev && !wantDev) continue;
    var found = Object.hasOwn(there, name) ? there[name] : undefined;
    if (found === undefined || !fs.existsSync(path.join(root, name, "package.json"))) {
      return entry.dev ? "the development tools are not there yet" : label(name) + " is missing";
    }
    if (found.version !== entry.version) return label(name) + " is not at version " + entry.version;
  }
  return "";
}

function packagesOf(file) {
  try {
    return JSON.parse(fs.readFileSync(path.join(root, file), "utf8")).packages;
  } catch (_) {
    return undefined;
  }
}

function label(name) {
  return name.slice(name.lastIndexOf("node_modules/") + "node_modules/".length);
}

function refuseReadOnly(missing) {
  try {
    var probe = path.join(root, ".holdfast-write-probe-" + process.pid);
    fs.writeFileSync(probe, "");
    fs.unlinkSync(probe);
  } catch (error) {
    fail(
      "Cannot install: " +
        missing +
        ", and this checkout cannot be written (" +
        error.code +
        "); " +
        "copy it to a folder that can be, or run `npm ci` where it can.",
      STORE_STATUS
    );
  }
}

/** One installation at a time: `npm ci` removes node_modules, also from under another `npm ci`. Returns the release. */
function takeTurn() {
  var folder = path.join(root, ".cache");
  var lock = path.join(folder, "ensure.lock");
  fs.mkdirSync(folder, { recursive: true });
  var until = Date.now() + LOCK_WAIT_MS;
  var told = false;
  for (;;) {
    try {
      fs.writeFileSync(lock, String(process.pid), { flag: "wx" });
      return function () {
        fs.rmSync ? fs.rmSync(lock, { force: true }) : fs.unlinkSync(lock);
      };
    } catch (error) {
      if (error.code !== "EEXIST") throw error;
    }
    if (!holderLives(lock)) {
      try {
        fs.unlinkSync(lock);
      } catch (_) {
        // Somebody else removed it: the next round sees who has the turn.
      }
      continue;
    }
    if (Date.now() > until) {
      fail("Cannot install: another installation holds " + lock + "; end it or remove that file.", STORE_STATUS);
    }
    if (!told) say("Another process is installing them; waiting for it.");
    told = true;
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
  }
}

function holderLives(lock) {
  try {
    var pid = Number(fs.readFileSync(lock, "utf8"));
    // An empty file: its writer has created it and not written yet, unless it is old.
    if (!pid) return Date.now() - fs.statSync(lock).mtimeMs < 5000;
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === "EPERM";
  }
}

function install(release) {
  // A checkout that has the development tools keeps them: `npm ci --omit=dev` would take them away.
  var keepDev = wantDev || fs.existsSync(path.join(root, "node_modules", "vitest", "package.json"));
  var args = ["ci", keepDev ? "--include=dev" : "--omit=dev", "--no-audit", "--no-fund", "--prefer-offline"];
  var npm = process.env.npm_execpath || "";
  // Other package managers set npm_execpath to themselves; they do not read this lock.
  var viaNode = /npm-cli\.c?js$/.test(npm) && fs.existsSync(npm);
  var result = viaNode
    ? child.spawnSync(process.execPath, [npm].concat(args), { cwd: root, stdio: "inherit" })
    : child.spawnSync("npm", args, { cwd: root, stdio: "inherit", shell: process.platform === "win32" });
  if (result.error) {
    release();
    fail(
      "Cannot install: npm could not be started (" + result.error.code + "); install npm and run `npm ci`.",
      STORE_STATUS
    );
  }
  if (result.status !== 0) {
    release();
    fail(
      "Cannot install: `npm ci` ended with " +
        (result.signal || "status " + result.status) +
        "; its own words are above.",
      result.status || STORE_STATUS
    );
  }
}

function say(text) {
  fs.writeSync(1, text + "\n");
}

function fail(text, status) {
  fs.writeSync(2, text + "\n");
  process.exit(status);
}
