// Keeps a page up to date: the server says which of its topics changed, and the page asks for
// itself again and takes over the elements that differ. Without it, all pages can be read.
"use strict";
(() => {
  const body = document.body;
  const said = document.getElementById("link");

  // Colours: as the system has them, until somebody chooses.
  const theme = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const nameTheme = () => { theme.textContent = isDark() ? theme.dataset.light : theme.dataset.dark; };
  const kept = localStorage.getItem("labctl-theme");
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
  nameTheme();
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const next = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    localStorage.setItem("labctl-theme", next);
    nameTheme();
  });
  system.addEventListener("change", nameTheme);

  // Somebody types in it or has opened it: it stays until they are done.
  const isInUse = (element) =>
    element.querySelector("details[open]") !== null ||
    (element.querySelector("form") !== null && element.contains(document.activeElement));

  // Takes over what differs, as deep down as elements have ids, so that focus, scroll position and
  // what a screen reader reads stay.
  const take = (old, fresh) => {
    if (old.isEqualNode(fresh) || isInUse(old) && !hasParts(old)) return;
    const parts = new Map([...old.children].map((one) => [one.id, one]));
    const named = hasParts(old) && hasParts(fresh);
    if (!named) {
      const focused = old.contains(document.activeElement) ? document.activeElement.id : "";
      old.replaceWith(fresh);
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
      if (fresh.tagName === "TR") fresh.classList.add("fresh");
      return;
    }
    let place = null;
    for (const one of [...fresh.children]) {
      const same = parts.get(one.id);
      if (same) {
        parts.delete(one.id);
        const next = place ? place.nextElementSibling : old.firstElementChild;
        if (next !== same) old.insertBefore(same, next);
        take(same, one);
        place = place ? place.nextElementSibling : old.firstElementChild;
      } else {
        old.insertBefore(one, place ? place.nextElementSibling : old.firstElementChild);
        place = one;
      }
    }
    for (const gone of parts.values()) gone.remove();
  };
  const hasParts = (element) =>
    element.children.length > 0 && [...element.children].every((one) => one.id);

  // A report is made anew as a whole; what somebody has opened in it stays open.
  const renew = (old, fresh) => {
    if (old.dataset.stamp === fresh.dataset.stamp) return;
    const open = new Set([...old.querySelectorAll("details[open] > summary")].map((one) => one.textContent));
    for (const one of fresh.querySelectorAll("details > summary")) one.parentElement.open ||= open.has(one.textContent);
    old.replaceWith(fresh);
    document.dispatchEvent(new Event("fresh"));
  };

  const adopt = (old, fresh) => {
    if (old.dataset.stamp) { renew(old, fresh); return; }
    // A table's rows are its parts; the rest around them is taken over where it differs.
    const oldRows = old.querySelector("tbody");
    const freshRows = fresh.querySelector("tbody");
    if (oldRows && freshRows && hasParts(oldRows) && hasParts(freshRows)) {
      take(oldRows, freshRows);
      for (const one of fresh.querySelectorAll(":scope > [id]")) {
        const same = document.getElementById(one.id);
        if (same) take(same, one);
      }
    } else if (!isInUse(old)) {
      take(old, fresh);
    }
  };

  // The sign-in page has another path: the session has ended, and this page would never change.
  const ask = async () => {
    const known = document.querySelector("[data-stamp]")?.dataset.stamp ?? "";
    const headers = { Accept: "text/html", "Labctl-Known": known }; // this report is left out
    const answer = await fetch(location.href, { headers, cache: "no-store" });
    if (answer.redirected) location.assign(answer.url);
    if (answer.redirected || !answer.ok) throw new Error(String(answer.status));
    return answer;
  };

  let busy = false, again = false;
  const update = async () => {
    if (busy) { again = true; return; }
    busy = true;
    try {
      const answer = await ask();
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of document.querySelectorAll("[data-live]")) {
        const one = fresh.getElementById(old.id);
        if (one) adopt(old, one);
      }
      body.dataset.update = String(Number(body.dataset.update || 0) + 1);
      tell("");
    } catch {
      tell(body.dataset.lost);
    } finally {
      busy = false;
      if (again) { again = false; setTimeout(update, 500); }
    }
  };
  const tell = (words) => { if (said.textContent !== words) said.textContent = words; };

  const topics = (body.dataset.topics || "").split(" ").filter(Boolean);
  if (topics.length) {
    let source = null;
    const connect = () => {
      source = new EventSource("/live");
      // Changes before the connection are not reported.
      source.addEventListener("hello", () => { update(); body.dataset.link = "live"; tell(""); });
      source.addEventListener("changed", (event) => {
        if (event.data.split(" ").some((one) => topics.includes(one))) update();
      });
      source.addEventListener("error", () => {
        tell(body.dataset.lost);
        if (source.readyState !== EventSource.CLOSED) return;
        update(); // leads to the sign-in page, where that is why
        setTimeout(connect, 5000);
      });
    };
    connect();
    addEventListener("pagehide", () => source.close());
    addEventListener("pageshow", (event) => { if (event.persisted) { connect(); update(); } });
  }

  const log = document.getElementById("log");
  if (log && log.dataset.stream) {
    const state = document.getElementById("log-state");
    const mostLines = 5000;
    const base = new URL(log.dataset.stream, location.href);
    let read = Number(base.searchParams.get("skip"));
    let source = null;
    const connect = () => {
      base.searchParams.set("skip", String(read));
      source = new EventSource(base);
      source.addEventListener("line", (event) => {
        const atEnd = log.scrollTop + log.clientHeight >= log.scrollHeight - 4;
        const line = document.createElement("li");
        line.textContent = JSON.parse(event.data);
        log.append(line);
        read += 1;
        while (log.children.length > mostLines) log.firstElementChild.remove();
        if (atEnd) log.scrollTop = log.scrollHeight;
      });
      source.addEventListener("end", () => { source.close(); state.textContent = state.dataset.endWord; });
      // The browser would ask again for the lines that it has: ask for those after them.
      source.addEventListener("error", () => {
        source.close();
        ask().catch(() => {}).finally(() => setTimeout(connect, 3000));
      });
    };
    connect();
    log.scrollTop = log.scrollHeight;
    addEventListener("pagehide", () => source.close());
  }
})();
