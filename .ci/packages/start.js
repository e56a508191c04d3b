"use strict";
// Starts a program from the package of this platform, passes on the signals that end it, and ends as it does.
const { spawn } = require("node:child_process");

module.exports = (program) => {
  const server = `@pqbridge/server-${process.platform}-${process.arch}`;
  let path;
  try {
    path = require.resolve(`${server}/bin/${program}`);
  } catch {
    console.error(
      `${program}: the package ${server} is not installed. npm leaves it out with --omit=optional, if node_modules ` +
        `comes from another platform, and where pqbridge has no programs: they are for Linux and macOS, x64 and arm64.`,
    );
    process.exit(1);
  }

  const child = spawn(path, process.argv.slice(2), { stdio: "inherit" });
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"];
  let ending = false;
  const pass = (signal) => {
    ending ||= signal !== "SIGHUP";
    child.kill(signal);
  };
  for (const signal of signals) process.on(signal, pass);

  // npx sends signals to the shell that it starts this with. Many shells pass none on, and are gone after SIGTERM.
  const parent = process.ppid;
  const orphaned = () => !ending && process.ppid !== parent && pass("SIGTERM");
  if (process.env.npm_command) setInterval(orphaned, 100).unref();

  child.on("error", (error) => {
    console.error(`${program}: ${error.message}`);
    process.exit(1);
  });
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code);
    for (const name of signals) process.removeAllListeners(name);
    process.kill(process.pid, signal);
  });
};
