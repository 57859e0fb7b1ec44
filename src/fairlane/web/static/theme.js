// Sets the chosen theme before anything is drawn.
try {
  const theme = localStorage.getItem("fairlane.theme");
  if (theme) document.documentElement.dataset.theme = theme;
} catch {
  // Storage is not allowed here: the theme is the system's.
}
