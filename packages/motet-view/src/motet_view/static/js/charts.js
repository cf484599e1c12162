"use strict";
/* Curves over training steps. uPlot draws them; a legend below has the values. */
(function (M) {
  const HEIGHT = 190;
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  /* Vertical lines where alarms began, small triangles at the bottom where games failed. */
  function marked(marks) {
    return {
      hooks: {
        draw: (plot) => {
          const { ctx, bbox } = plot;
          const scale = window.devicePixelRatio || 1;
          ctx.save();
          ctx.lineWidth = scale;
          for (const alarm of marks.alarms) {
            const x = Math.round(plot.valToPos(alarm.step, "x", true));
            ctx.strokeStyle = color("--bad");
            ctx.setLineDash([4 * scale, 3 * scale]);
            ctx.beginPath();
            ctx.moveTo(x, bbox.top);
            ctx.lineTo(x, bbox.top + bbox.height);
            ctx.stroke();
          }
          ctx.fillStyle = color("--warn");
          for (const fault of marks.faults) {
            const x = plot.valToPos(fault.step, "x", true);
            const y = bbox.top + bbox.height;
            ctx.beginPath();
            ctx.moveTo(x - 4 * scale, y);
            ctx.lineTo(x + 4 * scale, y);
            ctx.lineTo(x, y - 7 * scale);
            ctx.fill();
          }
          ctx.restore();
        },
      },
    };
  }

  function axes(unit) {
    const both = {
      stroke: color("--dim"), font: "11px " + color("--sans"),
      grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, gap: 6,
    };
    const whole = (plot, splits) => splits.map((value) => Number.isInteger(value) ? value.toLocaleString("en") : "");
    const shown = (plot, splits) => splits.map((value) => unit === "share" ? M.percent(value) : M.short(value));
    return [{ ...both, size: 26, values: whole, grid: { show: false } }, { ...both, size: 50, values: shown }];
  }

  M.short = function (value) {
    const size = Math.abs(value);
    if (size >= 1e6) return `${value / 1e6}M`;
    if (size >= 1e3) return `${value / 1e3}k`;
    return size !== 0 && size < 1e-3 ? value.toExponential(0) : String(Number(value.toPrecision(4)));
  };

  /* lines: [{label, steps, values, slot, dashed, points}]; marks: {alarms, faults} */
  M.chart = function (title, lines, marks, unit) {
    const there = lines.filter((line) => line.steps.length);
    const place = M.h("div", { class: "plot" });
    const legend = M.h("div", { class: "legend" });
    const means = Math.max(1, ...there.map((line) => line.mean_of || 1));
    const panel = M.h("section", { class: "panel chart" },
      M.h("header", {}, M.h("h2", {}, title),
        means > 1 && M.h("span", { class: "small dim" }, `each point is the mean of up to ${means} steps`)),
      place, legend);
    if (!there.length) {
      place.append(M.h("p", { class: "empty" }, "Not measured yet."));
      return panel;
    }
    const values = there.map((line) => {
      const value = M.h("span", { class: "num" });
      legend.append(M.h("span", { class: "key" },
        M.h("span", { class: `swatch c${line.slot % 8}${line.dashed ? " dashed" : ""}` }),
        M.h("span", { class: "label", title: M.plain(line.label) }, line.label), value));
      return value;
    });
    const data = uPlot.join(there.map((line) => [line.steps, line.values]));
    const write = (index) => there.forEach((line, at) => {
      const column = data[at + 1];
      let from = index === null || index === undefined ? column.length - 1 : index;
      while (from > 0 && (column[from] === null || column[from] === undefined)) from -= 1;
      values[at].textContent = unit === "share" ? M.percent(column[from]) : M.number(column[from]);
    });
    write(null);
    let plot = null;
    new ResizeObserver(() => {
      if (place.clientWidth === 0) return;
      if (plot === null) plot = draw(place, data, there, marks, unit, write);
      else plot.setSize({ width: place.clientWidth, height: HEIGHT });
    }).observe(place);
    return panel;
  };

  function draw(place, data, lines, marks, unit, write) {
    const low = data[0][0], high = data[0][data[0].length - 1];
    const options = {
      width: place.clientWidth, height: HEIGHT, legend: { show: false },
      cursor: { sync: { key: "steps" }, drag: { x: true, y: false }, points: { size: 6 } },
      scales: {
        x: { time: false, range: (plot, from, to) => low === high ? [low - 1, high + 1] : [from, to] },
        y: { range: (plot, from, to) => unit === "share" ? [Math.min(0, from), Math.max(1, to)]
          : uPlot.rangeNum(from, to, 0.1, true) },
      },
      axes: axes(unit),
      series: [{}, ...lines.map((line) => ({
        stroke: color(`--s${line.slot % 8}`), width: 1.75, spanGaps: true,
        dash: line.dashed ? [5, 4] : undefined,
        points: { show: line.points || line.steps.length === 1, size: 6, fill: color("--panel") },
      }))],
      plugins: [marked(marks)],
      hooks: { setCursor: [(plot) => write(plot.cursor.idx)] },
    };
    return new uPlot(options, data, place);
  }
})(window.motet);
