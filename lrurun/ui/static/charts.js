// Draws the curves of a page by uPlot. Drag to zoom; with the keyboard: arrows, + and -, 0.
"use strict";
(() => {
  const DASHES = [[], [8, 4], [2, 3], [8, 4, 2, 4]];
  const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const color = (look) => style(`--c${look % 8}`);
  const element = (name, attributes = {}, text = "") => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
  const short = (value) => (value == null ? "–" : Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3)
    ? value.toExponential(2) : String(+value.toPrecision(5)));

  class Charts {
    constructor(section) {
      this.section = section;
      this.source = section.dataset.src;
      this.span = null;
      this.plots = [];
      const tools = element("div", { class: "tools", role: "group", "aria-label": "Zoom" });
      for (const [text, name, act] of [["+", "Zoom in", () => this.zoom(0.5)], ["−", "Zoom out", () => this.zoom(2)],
        ["←", "Earlier steps", () => this.move(-0.25)], ["→", "Later steps", () => this.move(0.25)], ["All", "All steps", () => this.show(null)]]) {
        const button = element("button", { type: "button", "aria-label": name, title: name }, text);
        button.addEventListener("click", act);
        tools.append(button);
      }
      if ("seeds" in section.dataset) {
        const label = element("label"), box = element("input", { type: "checkbox" });
        box.addEventListener("change", () => { this.seeds = box.checked; this.load(); });
        label.append(box, " single seeds");
        tools.append(label);
      }
      this.panels = element("div", { class: "panels" });
      this.notes = element("p", { class: "faint" });
      this.tools = tools;
      section.append(tools, this.panels, this.notes);
      this.load();
    }

    async load() {
      const address = new URL(this.source, location.href);
      if (this.seeds) address.searchParams.set("seeds", "1");
      if (this.span) {
        address.searchParams.set("from", String(Math.floor(this.span[0])));
        address.searchParams.set("to", String(Math.ceil(this.span[1])));
      }
      const turn = (this.turn = (this.turn || 0) + 1);
      let drawn;
      try {
        const answer = await fetch(address);
        if (!answer.ok) return;
        drawn = await answer.json();
      } catch (error) {
        return; // the page says that the server is away
      }
      if (turn !== this.turn) return;
      this.tools.hidden = drawn.panels.length === 0;
      this.notes.textContent = drawn.caption || (drawn.panels.length ? "" : "None recorded yet.");
      this.draw(drawn.panels);
    }

    draw(panels) {
      const hidden = new Set(this.plots.flatMap((plot, place) => plot.series.flatMap((one, k) => (k && one.show === false ? [`${place} ${one.key}`] : []))));
      const focused = this.plots.findIndex((plot) => plot.frame === document.activeElement);
      for (const plot of this.plots) plot.destroy();
      this.panels.replaceChildren();
      this.looks = [...new Set(panels.flatMap((panel) => panel.curves.map((line) => line.family || line.label)))];
      this.plots = panels.map((panel, place) => this.plot(panel, place, hidden));
      if (focused >= 0) this.plots[focused]?.frame.focus({ preventScroll: true });
    }

    plot(panel, place, hidden) {
      const frame = element("figure", { class: "chart" });
      const names = panel.curves.filter((line) => line.style !== "thin").map((line) => line.label);
      const inner = element("div", { tabindex: "0", role: "application", "aria-roledescription": "chart",
        "aria-label": `${panel.title ? `${panel.title}: ` : ""}${panel.y} over steps, ${panel.curves.length} lines: ${names.slice(0, 12).join(", ")}. Arrow keys read values, plus and minus zoom, 0 shows all.` });
      if (panel.title) frame.append(element("figcaption", {}, panel.title));
      frame.append(inner);
      this.panels.append(frame);
      const tables = [], series = [{ label: "step" }], bands = [];
      for (const line of panel.curves) {
        const look = this.looks.indexOf(line.family || line.label), thin = line.style === "thin";
        const stroke = color(look), key = line.label + (thin ? " seed" : "");
        const show = !hidden.has(`${place} ${key}`);
        const columns = [line.x, line.y];
        series.push({ label: line.label, key, show, stroke, width: thin ? 1 : 2, spanGaps: true, alpha: thin ? 0.6 : 1,
          dash: thin ? [] : DASHES[look % 4], points: { show: line.x.length < 3 }, value: (plot, value) => short(value) });
        if (line.low.length) {
          const at = series.length;
          const edge = { show, stroke: "transparent", width: 0, spanGaps: true, points: { show: false }, key: `${key} band` };
          series.push({ ...edge, label: `${line.label}, upper end` }, { ...edge, label: `${line.label}, lower end` });
          bands.push({ series: [at, at + 1], fill: stroke + "30" });
          columns.push(line.high, line.low);
        }
        tables.push(columns);
      }
      const axis = { stroke: style("--faint"), grid: { stroke: style("--rule"), width: 0.5 }, ticks: { stroke: style("--rule") } };
      const options = {
        width: Math.max(240, Math.min(720, inner.clientWidth)), height: 260, series, bands,
        scales: { x: { time: false }, y: panel.y_scale === "log" ? { distr: 3, log: 10 } : {} },
        axes: [{ ...axis, label: "step", labelSize: 20, size: 34 }, { ...axis, label: panel.y, labelSize: 20, size: 60, values: (plot, ticks) => ticks.map((tick) => (tick == null ? "" : short(tick))) }],
        cursor: { drag: { x: true, y: false, setScale: false }, focus: { prox: 20 } },
        focus: { alpha: 0.35 },
        legend: { show: panel.curves.length <= 24, live: true },
        hooks: { setSelect: [(plot) => {
          if (plot.select.width < 3) return;
          this.show([plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")]);
        }] },
      };
      const data = tables.length ? uPlot.join(tables) : [[]];
      const plot = new uPlot(options, data, inner);
      plot.frame = inner;
      plot.root.querySelectorAll(".u-legend tr").forEach((row, at) => { if (/, (upper|lower) end$/.test(series[at]?.label || "")) row.hidden = true; });
      if (this.span) plot.setScale("x", { min: this.span[0], max: this.span[1] });
      inner.addEventListener("keydown", (event) => this.key(event, plot));
      plot.over.addEventListener("dblclick", () => this.show(null));
      return plot;
    }

    range() {
      if (this.span) return this.span;
      const steps = this.plots.map((plot) => plot.data[0]).filter((one) => one.length);
      return [Math.min(...steps.map((one) => one[0])), Math.max(...steps.map((one) => one.at(-1)))];
    }

    zoom(factor) {
      const [low, high] = this.range(), middle = (low + high) / 2, half = Math.max((high - low) * factor, 2) / 2;
      this.show([middle - half, middle + half]);
    }

    move(share) {
      if (!this.span) return;
      const [low, high] = this.range(), by = Math.min(Math.max(share * (high - low), this.whole[0] - low), this.whole[1] - high);
      this.show([low + by, high + by]);
    }

    // Of a shorter span the server knows more points.
    show(span) {
      if (!this.span) this.whole = this.range();
      this.span = span && [Math.max(span[0], this.whole[0]), Math.min(span[1], this.whole[1])];
      if (this.span && this.span[0] <= this.whole[0] && this.span[1] >= this.whole[1]) this.span = null;
      this.load();
    }

    key(event, plot) {
      const acts = { "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.show(null),
        ArrowLeft: () => this.cursor(plot, -1), ArrowRight: () => this.cursor(plot, 1) };
      if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      acts[event.key]();
    }

    cursor(plot, by) {
      const steps = plot.data[0], at = plot.cursor.idx == null ? (by > 0 ? -1 : steps.length) : plot.cursor.idx;
      const next = Math.max(0, Math.min(steps.length - 1, at + by));
      plot.setCursor({ left: plot.valToPos(steps[next], "x"), top: plot.over.clientHeight / 2 });
    }
  }

  const all = [...document.querySelectorAll(".charts")].map((section) => new Charts(section));
  const again = () => all.forEach((one) => one.load());
  document.addEventListener("ledgerchange", again);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; again(); } });
})();
