"use strict";
(() => {
  const root = document.documentElement;
  const wantsDark = matchMedia("(prefers-color-scheme: dark)");
  const words = JSON.parse(document.getElementById("words")?.textContent ?? "null");
  const theme = () => root.dataset.theme ?? (wantsDark.matches ? "dark" : "light");

  // --- tables: a click on a heading sorts up, then down, then as it was
  const collator = new Intl.Collator(root.lang, { numeric: true });
  function sort(heading) {
    const table = heading.closest("table"), body = table.tBodies[0], index = heading.cellIndex;
    body.original ??= [...body.rows];
    const next = { none: "ascending", ascending: "descending", descending: "none" }[heading.ariaSort];
    for (const other of table.tHead.rows[0].cells) other.ariaSort = other === heading ? next : "none";
    const rows = [...body.original];
    if (next !== "none") {
      const sign = next === "ascending" ? 1 : -1;
      const isNumeric = heading.classList.contains("number");
      const value = (row) => Number(row.cells[index].dataset.value ?? NaN);
      rows.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (isNumeric || !(isNaN(x) && isNaN(y))) return isNaN(x) - isNaN(y) || sign * (x - y) || 0;
        return sign * collator.compare(a.cells[index].textContent, b.cells[index].textContent);
      });
    }
    body.append(...rows);
  }
  document.addEventListener("click", ({ target }) => {
    if (target.closest("thead button")) sort(target.closest("th"));
  });

  // --- a table that is wider than its page: first what was measured, then of what
  let shown = innerWidth;
  function arrange() {
    for (const { tHead, tBodies: [body], parentElement: box } of document.querySelectorAll("table:has([data-later])")) {
      const headings = tHead.rows[0];
      headings.original ??= [...headings.cells];
      const order = (columns) => {
        for (const row of [headings, ...body.rows]) {
          row.original ??= [...row.cells];
          row.append(...columns.map((index) => row.original[index]));
        }
      };
      const columns = headings.original.map((_, index) => index);
      const isLater = (index) => "later" in headings.original[index].dataset;
      order(columns);
      if (box.scrollWidth > box.clientWidth) order(columns.toSorted((a, b) => isLater(a) - isLater(b)));
    }
  }
  addEventListener("resize", () => {
    if (innerWidth !== shown) arrange();
    shown = innerWidth;
  });
  arrange();

  // --- tooltips: for a mouse, a finger and the keyboard
  const tip = document.getElementById("tip");
  function showTip(text, at) {
    tip.textContent = text;
    tip.hidden = false;
    const own = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(8, Math.min(at.left, innerWidth - own.width - 8))}px`;
    tip.style.top = `${at.bottom + own.height + 12 > innerHeight ? at.top - own.height - 6 : at.bottom + 6}px`;
  }
  function hideTip(event) {
    event?.target.closest?.("[data-tip]")?.removeAttribute("aria-describedby");
    tip.hidden = true;
  }
  for (const [on, off] of [["mouseover", "mouseout"], ["focusin", "focusout"]]) {
    document.addEventListener(on, (event) => {
      const target = event.target.closest("[data-tip]");
      if (!target) return;
      target.setAttribute("aria-describedby", "tip");
      showTip(target.dataset.tip, target.getBoundingClientRect());
    });
    document.addEventListener(off, hideTip);
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
  document.addEventListener("scroll", () => hideTip(), { passive: true });

  // --- figures: the values of the mark that is nearest to the pointer, or chosen by arrow keys
  const nearest = 24; // px
  function explain(plot) {
    const svg = plot.querySelector("svg"), texts = new Map();
    for (const title of svg.querySelectorAll("title")) { // the browser's own tooltips
      const mark = title.parentElement;
      if (mark === svg) svg.setAttribute("aria-label", title.textContent);
      else texts.set(mark, title.textContent);
      title.remove();
    }
    if (!texts.size) return;
    const marks = [...texts.keys()];
    let chosen = null;
    const show = (mark) => {
      chosen?.classList.remove("chosen");
      chosen = mark;
      if (!mark) return hideTip();
      mark.classList.add("chosen");
      showTip(texts.get(mark), mark.getBoundingClientRect());
    };
    function distance(mark, { clientX, clientY }) {
      const at = mark.getBoundingClientRect();
      return Math.hypot(Math.max(at.left - clientX, 0, clientX - at.right), Math.max(at.top - clientY, 0, clientY - at.bottom));
    }
    plot.addEventListener("pointermove", (event) => {
      if (texts.has(event.target)) return show(event.target);
      const small = marks.filter((mark) => mark.getAttribute("fill") !== "none");
      const [best, far] = small.map((mark) => [mark, distance(mark, event)]).reduce((a, b) => b[1] < a[1] ? b : a, [null, nearest]);
      show(far < nearest ? best : null);
    });
    plot.addEventListener("pointerleave", () => show(null));
    plot.addEventListener("blur", () => show(null));
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      show(marks.at((marks.indexOf(chosen) + step + (chosen || step > 0 ? 0 : 1)) % marks.length));
    });
    plot.tabIndex = 0;
    plot.setAttribute("role", "group");
    plot.setAttribute("aria-label", plot.dataset.label);
  }
  const explainAll = () => document.querySelectorAll(".plot:not([tabindex])").forEach(explain);
  explainAll();
  document.addEventListener("fresh", () => { arrange(); explainAll(); }); // the dashboard has replaced the report

  // --- what a figure shows, as files
  const formula = /^[=+\-@\t\r\n]/; // a spreadsheet would compute it
  function csvCell(value) {
    if (value === null || value === undefined) return "";
    const text = typeof value === "string" && formula.test(value) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }
  function csv(element) {
    const columns = Object.entries(JSON.parse(element.querySelector("script").textContent));
    const cell = ({ values, names }, at) => names ? names[values[at]] : values[at];
    const count = columns[0]?.[1].values.length ?? 0;
    const rows = Array.from({ length: count }, (_, at) => columns.map(([, column]) => cell(column, at)));
    return [columns.map(([name]) => name), ...rows].map((row) => row.map(csvCell).join(",") + "\r\n").join("");
  }
  function picture(element) { // in light colours, with the title and the warning
    const svg = element.querySelector("svg").cloneNode(true), { width, height } = svg.viewBox.baseVal;
    const lines = [...element.querySelectorAll("h3, .warning")], top = 6 + 22 * lines.length;
    const add = (name, text, values) => {
      const made = document.createElementNS(svg.namespaceURI, name);
      made.textContent = text;
      for (const [key, value] of Object.entries(values)) made.setAttribute(key, value);
      return made;
    };
    svg.setAttribute("viewBox", `0 ${-top} ${width} ${height + top}`);
    svg.setAttribute("height", height + top);
    svg.prepend(add("rect", "", { y: -top, width, height: height + top, fill: "#ffffff" }), ...lines.map((line, at) =>
      add("text", line.textContent, { x: 6, y: 20 - top + 22 * at, "font-size": at ? 12 : 15, "font-weight": "bold" })));
    return new XMLSerializer().serializeToString(svg).replace(/var\(--\w+,(#\w+)\)/g, "$1");
  }
  function save(text, type, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  document.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-save]"), element = target.closest("figure");
    if (button?.dataset.save === "csv") save("\ufeff" + csv(element), "text/csv", button.dataset.file);
    else if (button) save(picture(element), "image/svg+xml", button.dataset.file);
  });

  // --- theme and print
  if (words) { // else the dashboard does it
    const toggle = document.getElementById("theme");
    const label = () => { toggle.textContent = words[theme() === "dark" ? "light" : "dark"]; };
    toggle.addEventListener("click", () => {
      root.dataset.theme = theme() === "dark" ? "light" : "dark";
      label();
    });
    wantsDark.addEventListener("change", label);
    label();
  }
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details[data-print]:not([open])")) {
      details.open = true;
      details.dataset.opened = "";
    }
  });
  addEventListener("afterprint", () => {
    for (const details of document.querySelectorAll("details[data-opened]")) {
      details.open = false;
      delete details.dataset.opened;
    }
  });
})();
