"use strict";
/* Runs over each other: curves, alarms, faults, and how their configs differ. */
(function (M) {
  const { h } = M;
  const STATES = { training: "live", quiet: "warn", finished: "good", stopped: "" };
  const MOST_TERMS = 8;

  function chosen(query) {
    const names = M.runs.map((run) => run.name);
    const wanted = query.getAll("run").filter((name) => names.includes(name));
    return wanted.length ? wanted : names.slice(0, M.runs.length <= 4 ? 4 : 1);
  }

  function stateOf(run) {
    if (run.indexing !== null && run.indexing !== undefined && run.indexing < 1) {
      return h("span", { class: "chip live" }, `indexing ${Math.floor(100 * run.indexing)} %`);
    }
    const silent = run.state === "quiet" ? `, silent for ${M.ago(run.silent_seconds)}` : "";
    return h("span", { class: `chip ${STATES[run.state] || ""}` }, run.state + silent);
  }

  function heldout(run) {
    const { before, after } = run.heldout;
    if (before === undefined && after === undefined) return "–";
    return `${M.percent(before)} → ${M.percent(after)}`;
  }

  function runTable(names) {
    const change = (name, on) => {
      const next = on ? [...names, name] : names.filter((one) => one !== name);
      location.hash = M.link("overview", { run: M.runs.map((run) => run.name).filter((one) => next.includes(one)) });
    };
    const rows = M.runs.map((run) => {
      const at = names.indexOf(run.name);
      return h("tr", {},
        h("td", {}, h("label", { class: "pick" },
          h("input", { type: "checkbox", checked: at >= 0, disabled: at >= 0 && names.length === 1,
            onchange: (event) => change(run.name, event.target.checked) }),
          h("span", { class: `dot c${Math.max(at, 0) % 8}${at < 0 || names.length === 1 ? " off" : ""}` }),
          h("span", {}, run.name))),
        h("td", {}, stateOf(run)),
        h("td", { class: "num" }, run.step === null ? "–" : `${M.number(run.step)}${run.steps ? ` / ${M.number(run.steps)}` : ""}`),
        h("td", { class: "num" }, heldout(run)),
        h("td", { class: "num" }, run.games ? h("a", { href: M.link("games", { run: run.name }) }, M.number(run.games)) : "0"),
        h("td", { class: "num" }, run.seed === null ? "–" : String(run.seed)));
    });
    return h("section", { class: "panel scroll" }, h("table", { class: "runs" },
      h("thead", {}, h("tr", {}, h("th", {}, "Run"), h("th", {}, "State"), h("th", { class: "num" }, "Step"),
        h("th", { class: "num" }, "Held-out success"), h("th", { class: "num" }, "Games"), h("th", { class: "num" }, "Seed"))),
      h("tbody", {}, rows)));
  }

  const under = (names, stem) => names.filter((name) => name.startsWith(stem));
  const last = (name) => name.split("/").slice(2).join("/");

  /* The panels: title, unit, and per run the metrics with their labels. */
  function panels(all, many, extra) {
    const every = [...new Set(all.flatMap((one) => one.metrics))].sort();
    const has = (name) => every.includes(name);
    const terms = under(every, "play/terms/").filter((name) => name !== "play/terms/success").slice(0, MOST_TERMS);
    const kl = has("learn/kl") ? "learn/kl" : "learn/approx_kl";
    const split = (stem) => many ? [] : under(every, `${stem}/`).map((name) => [name, last(name)]);
    const found = [
      ["Success", "share", [["play/success", "training"], ["evaluate/success", "held out"]]],
      ["Reward", "", [["play/reward", "training"], ["evaluate/reward", "held out"], ...split("play/reward")]],
      ...(many ? terms.map((name) => [`Term ${last(name)}`, "", [[name, last(name)]]])
        : [["Reward terms", "", terms.map((name) => [name, last(name)])]]),
      ["Entropy (nats)", "", [["learn/entropy", "all policies"], ...split("learn/entropy")]],
      [kl === "learn/kl" ? "KL to the reference (nats)" : "KL of the update (nats)", "", [[kl, "all policies"], ...split(kl)]],
      ["Tokens per second", "", [["time/tokens_per_second", "of a step"]]],
    ];
    const shown = extra && has(extra) ? extra : null;
    const measured = found.filter(([, , list]) => list.some(([name]) => has(name)));
    return { found: every.length ? measured : found.slice(0, 2), every, shown };
  }

  function linesOf(names, curves, metrics) {
    const many = names.length > 1;
    const lines = names.flatMap((name, at) => metrics.map(([metric, label], place) => {
      const curve = curves[at][metric];
      const heldOut = metric.startsWith("evaluate/");
      return { ...curve, label: many ? (metrics.length > 1 ? `${name}, ${label}` : name) : label,
        slot: many ? at : place, dashed: heldOut, points: heldOut };
    }));
    // The rewards of agents that share them are one line.
    const same = (one, other) => JSON.stringify([one.steps, one.values]) === JSON.stringify([other.steps, other.values]);
    return many ? lines : lines.filter((line, at) => at === 0 || !same(line, lines[0]));
  }

  const count = (number, one, several = `${one}s`) => `${M.number(number)} ${number === 1 ? one : several}`;

  function alarmList(names, all) {
    const rows = names.flatMap((name, at) => all[at].alarms.map((alarm) => h("tr", {},
      names.length > 1 && h("td", {}, name), h("td", { class: "num" }, `step ${alarm.step}`),
      h("td", {}, h("span", { class: "bad" }, "alarm "), alarm.metric
        ? `${alarm.metric} is ${M.number(alarm.value)}, beyond alarms.${alarm.bound}` : "a bound of the section alarms was exceeded"))));
    const faults = names.flatMap((name, at) => {
      const total = all[at].faults.reduce((sum, one) => sum + one.count, 0);
      return total ? [h("tr", {}, names.length > 1 && h("td", {}, name),
        h("td", { class: "num" }, count(all[at].faults.length, "step")),
        h("td", {}, h("span", { class: "warn" }, "faults "), `${count(total, "failed game or joint action", "failed games or joint actions")}. `,
          h("a", { href: M.link("games", { run: name, fault: "any" }) }, "Show them")))] : [];
    });
    const warnings = names.flatMap((name, at) => all[at].warnings.map((warning) => h("tr", {},
      names.length > 1 && h("td", {}, name), h("td", { class: "num" }, "warning"), h("td", {}, String(warning)))));
    const lines = [...rows, ...faults, ...warnings];
    return h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Alarms and faults"),
      h("span", { class: "small dim" }, "dashed red lines and triangles in the curves")),
    lines.length ? h("div", { class: "scroll" }, h("table", {}, h("tbody", {}, lines)))
      : h("p", { class: "body dim" }, "None."));
  }

  function worthReading(names, all) {
    const titles = { best: "Best game", worst: "Worst game" };
    const rows = names.flatMap((name, at) => all[at].highlights.map((one) => h("tr", {},
      h("td", {}, h("a", { href: M.link("game", { run: name, id: one.id }) }, titles[one.title] || one.title)),
      names.length > 1 && h("td", { class: "dim" }, name),
      h("td", { class: "num" }, `step ${one.step}`), h("td", { class: "num" }, `reward ${M.fixed(one.reward)}`))));
    if (!rows.length) return null;
    return h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Games worth reading")),
      h("div", { class: "scroll" }, h("table", {}, h("tbody", {}, rows))));
  }

  const shown = (value) => value === null || value === undefined ? "–"
    : typeof value === "string" ? value : JSON.stringify(value);

  async function configPanel(names, all) {
    if (names.length === 1) {
      const rows = Object.entries(all[0].config).map(([key, value]) => h("tr", {},
        h("td", { class: "mono dim" }, key), h("td", { class: "mono" }, shown(value))));
      return h("section", { class: "panel" }, h("details", { class: "body" }, h("summary", {}, `Config (${rows.length} keys)`),
        h("div", { class: "scroll" }, h("table", { class: "config" }, h("tbody", {}, rows)))));
    }
    const found = await M.get("configs", { run: names });
    const body = found.rows.length ? h("div", { class: "scroll" }, h("table", { class: "config" },
      h("thead", {}, h("tr", {}, h("th", {}, "Key"), found.runs.map((name) => h("th", {}, name)))),
      h("tbody", {}, found.rows.map((row) => h("tr", {}, h("td", { class: "mono dim" }, row.key),
        row.values.map((value) => h("td", { class: "mono" }, shown(value)))))))) : h("p", { class: "body dim" }, "None.");
    return h("section", { class: "panel" }, h("header", {}, h("h2", {}, "Differences of the configs")), body);
  }

  M.views.overview = async function (query) {
    const names = chosen(query), many = names.length > 1;
    const all = await Promise.all(names.map((run) => M.get("overview", { run })));
    const wanted = panels(all, many, query.get("metric"));
    const metrics = [...new Set(wanted.found.flatMap(([, , list]) => list.map(([name]) => name)))];
    if (wanted.shown) metrics.push(wanted.shown);
    const curves = await Promise.all(names.map((run) => M.get("curves", { run, metric: metrics })));
    const marks = { alarms: all.flatMap((one) => one.alarms), faults: all.flatMap((one) => one.faults.filter((fault) => fault.where === "play")) };
    const charts = wanted.found.map(([title, unit, list]) => M.chart(title, linesOf(names, curves, list), marks, unit));
    const pick = M.select("Another metric", [["", "Another metric…"], ...wanted.every.map((name) => [name, name])],
      wanted.shown || "", (metric) => { location.hash = M.link("overview", { run: query.getAll("run"), metric }); });
    if (wanted.shown) charts.push(M.chart(wanted.shown, linesOf(names, curves, [[wanted.shown, wanted.shown]]), marks, ""));
    const notes = M.runs.filter((run) => names.includes(run.name))
      .flatMap((run) => run.notes.map((note) => h("p", { class: "note" }, `${run.name}: ${note}`)));
    const config = await configPanel(names, all);
    return {
      title: many ? "Runs" : names[0],
      runs: names,
      nodes: [runTable(names), ...notes,
        h("div", { class: "head" }, h("h2", {}, "Training"), h("span", { class: "push" }), pick),
        h("div", { class: "charts" }, charts),
        h("div", { class: "pair" }, alarmList(names, all), worthReading(names, all)), config],
    };
  };
})(window.motet);
