// The reader's theme, before the first paint. Without a choice the system decides.
"use strict";
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch { /* Storage is switched off. */ }
