// Before anything is painted: the colours that were chosen last. A script of its own, because modules come too late.
"use strict";
try {
  document.documentElement.dataset.theme = localStorage.getItem("flyball.theme") ?? "auto";
} catch {
  // A browser that keeps nothing shows what the system prefers.
}
