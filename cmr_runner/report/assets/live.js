"use strict";
// Served on loopback: ask for a digest of the runs' files, and reload when it is another. The view is in the address.

(() => {
  const known = "STATE";
  const badge = Object.assign(document.createElement("span"), { id: "live", textContent: "live" });
  document.querySelector("header")?.append(badge);
  const look = async () => {
    try {
      const now = await (await fetch("/state")).text();
      if (now !== known) {
        if (typeof keepView === "function") keepView();
        location.reload();
        return;
      }
      badge.textContent = "live";
    } catch {
      badge.textContent = "not connected";
    }
    setTimeout(look, 1000);
  };
  look();
})();
