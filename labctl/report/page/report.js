"use strict";
(() => {
  const root = document.documentElement;
  const wantsDark = matchMedia("(prefers-color-scheme: dark)");
  const settings = JSON.parse(document.getElementById("settings")?.textContent ?? "{}");
  const words = JSON.parse(document.getElementById("words").textContent);
  let printing = false;
  const theme = () => printing ? "light" : root.dataset.theme ?? (wantsDark.matches ? "dark" : "light");

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
  for (const button of document.querySelectorAll("thead button"))
    button.addEventListener("click", () => sort(button.closest("th")));

  // --- on a phone: first what was measured, then of what
  const narrow = matchMedia("(max-width: 40rem)");
  function arrange() {
    for (const { tHead, tBodies: [body] } of document.querySelectorAll("table:has([data-later])")) {
      const headings = tHead.rows[0];
      headings.original ??= [...headings.cells];
      const wanted = headings.original.map((heading, index) => ({ heading, index }));
      if (narrow.matches) wanted.sort((a, b) => ("later" in a.heading.dataset) - ("later" in b.heading.dataset));
      for (const row of [headings, ...body.rows]) {
        row.original ??= [...row.cells];
        row.append(...wanted.map(({ index }) => row.original[index]));
      }
    }
  }
  narrow.addEventListener("change", arrange);
  arrange();

  // --- tooltips: for a mouse, a finger and the keyboard
  const tip = document.getElementById("tip");
  function showTip(target) {
    tip.textContent = target.dataset.tip;
    tip.hidden = false;
    target.setAttribute("aria-describedby", "tip");
    const at = target.getBoundingClientRect(), own = tip.getBoundingClientRect();
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
      if (target) showTip(target);
    });
    document.addEventListener(off, hideTip);
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
  document.addEventListener("scroll", () => hideTip(), { passive: true });

  // --- figures: drawn when they come near, in the colours of the page
  const figures = new Map();
  for (const element of document.querySelectorAll("figure")) {
    const data = JSON.parse(element.querySelector("script").textContent);
    figures.set(element, { ...data, plot: element.querySelector(".plot"), drawn: "" });
  }
  function rowsOf({ columns }) {
    const names = Object.keys(columns);
    const cells = names.map((name) => {
      const { values, names: words } = columns[name];
      return words ? values.map((index) => index < 0 ? null : words[index]) : values;
    });
    return (cells[0] ?? []).map((_, at) => Object.fromEntries(names.map((name, n) => [name, cells[n][at]])));
  }
  function makeView(figure, width, colours, extra, options) {
    const { View, parse, compile, expressionInterpreter } = labctlVega;
    const spec = { ...structuredClone(figure.spec), ...extra };
    if (spec.vconcat) for (const part of spec.vconcat) part.width = Math.max(120, width - spec.usermeta.outside);
    else spec.width = width;
    spec.datasets = { [settings.data]: figure.rows ??= rowsOf(figure) };
    const { spec: vega } = compile(spec, { config: { ...settings.themes[colours], aria: false } });
    return new View(parse(vega, null, { ast: true }), { expr: expressionInterpreter, renderer: "svg", ...options });
  }
  function draw(element) {
    const figure = figures.get(element), { plot } = figure;
    const width = Math.floor(plot.clientWidth), state = `${theme()} ${width}`;
    if (figure.drawn === state || !width) return;
    figure.view?.finalize();
    plot.replaceChildren();
    const tooltip = new labctlVega.Handler({ disableDefaultStyle: true }).call;
    figure.view = makeView(figure, width, theme(), {}, { container: plot, hover: true, tooltip });
    figure.view.run();
    plot.querySelector("svg").setAttribute("aria-hidden", "true"); // its frame has the words
    figure.drawn = state;
    element.dataset.drawn = theme();
  }
  const drawAll = () => { for (const element of figures.keys()) draw(element); };
  const redraw = () => { for (const [element, figure] of figures) if (figure.drawn) draw(element); };
  if (figures.size) {
    const near = new IntersectionObserver((entries) => {
      for (const { isIntersecting, target } of entries) if (isIntersecting) draw(target);
    }, { rootMargin: "800px 0px" });
    for (const element of figures.keys()) near.observe(element);
    let waiting = 0;
    addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(redraw); });
  }

  // --- what a figure shows, as files
  const formula = /^[=+\-@\t\r\n]/; // a spreadsheet would compute it
  function csvCell(value) {
    if (value === null || value === undefined) return "";
    const text = typeof value === "string" && formula.test(value) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }
  function csv(figure) {
    const rows = figure.rows ??= rowsOf(figure), names = Object.keys(figure.columns);
    return [names, ...rows.map((row) => names.map((name) => row[name]))]
      .map((row) => row.map(csvCell).join(",") + "\r\n").join("");
  }
  function save(text, type, name) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
  for (const button of document.querySelectorAll("[data-save]")) {
    button.addEventListener("click", async () => {
      const element = button.closest("figure"), figure = figures.get(element);
      if (button.dataset.save === "csv") return save("\ufeff" + csv(figure), "text/csv", button.dataset.file);
      const view = makeView(figure, settings.pictureWidth, "light", { title: figure.heading, background: "#ffffff" });
      save(await view.toSVG(), "image/svg+xml", button.dataset.file);
      view.finalize();
    });
  }

  // --- theme and print
  const toggle = document.getElementById("theme");
  const label = () => { toggle.textContent = words[theme() === "dark" ? "light" : "dark"]; };
  toggle.addEventListener("click", () => {
    root.dataset.theme = theme() === "dark" ? "light" : "dark";
    label();
    redraw();
  });
  wantsDark.addEventListener("change", () => { label(); redraw(); });
  label();
  addEventListener("beforeprint", () => {
    printing = true;
    for (const details of document.querySelectorAll("details[data-print]:not([open])")) {
      details.open = true;
      details.dataset.opened = "";
    }
    drawAll();
  });
  addEventListener("afterprint", () => {
    printing = false;
    for (const details of document.querySelectorAll("details[data-opened]")) {
      details.open = false;
      delete details.dataset.opened;
    }
    redraw();
  });
})();
