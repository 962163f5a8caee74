// early.js: the theme that the reader wants, before anything is seen.
try {
  const { theme } = JSON.parse(localStorage.getItem("lockstep.settings"));
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // nothing is kept: as the system has it
}
