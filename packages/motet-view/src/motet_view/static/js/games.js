"use strict";
/* The list of games of a run, with filters. The address holds the filters, so it can be shared. */
(function (M) {
  const { h } = M;
  const PAGE = 50;
  const FILTERS = ["kind", "first_step", "last_step", "success", "lowest", "highest", "fault", "cut", "agent", "task", "text", "order"];
  const KINDS = { train: "training", evaluate: "held out", pairs: "pairs of the reward model" };

  function parameters(query, more) {
    const found = { run: M.runOf(query) };
    for (const name of [...FILTERS, "start"]) found[name] = query.get(name);
    return { ...found, ...more };
  }
  const go = (query, more) => { location.hash = M.link("games", parameters(query, { start: null, ...more })); };

  function field(query, name, label, attributes) {
    const number = attributes && attributes.type === "number";
    return h("label", { class: "field" }, h("span", {}, label), h("input", {
      ...attributes, name, value: query.get(name) || "", autocomplete: "off",
      step: number ? "any" : null,
      onchange: (event) => go(query, { [name]: event.target.value || null }),
    }));
  }
  const choice = (query, name, label, options) => h("label", { class: "field" }, h("span", {}, label),
    M.select(label, options, query.get(name) || "", (value) => go(query, { [name]: value || null })));

  function filters(query, choices) {
    const kinds = choices.kinds.map((one) => [one.kind, `${KINDS[one.kind] || one.kind} (${M.number(one.games)})`]);
    const set = FILTERS.some((name) => name !== "order" && query.get(name));
    return h("section", { class: "panel filters" },
      field(query, "text", "Text (press /)", { type: "search", id: "search", placeholder: "words that the game contains" }),
      choice(query, "kind", "Games", [["", "all"], ...kinds]),
      choice(query, "success", "Success", [["", "any"], ["true", "solved"], ["false", "not solved"]]),
      choice(query, "fault", "Faults", [["", "any"], ["none", "without"], ["any", "with a fault"], ...choices.causes.map((one) => [one, one])]),
      choice(query, "cut", "Cut off", [["", "any"], ["true", "with a cut answer"], ["false", "without"]]),
      choice(query, "agent", "Agent", [["", "whole team"], ...choices.agents.map((one) => [one, one])]),
      h("div", { class: "two" }, field(query, "first_step", "From step", { type: "number", min: 0 }),
        field(query, "last_step", "to step", { type: "number", min: 0 })),
      h("div", { class: "two" }, field(query, "lowest", "Reward from", { type: "number" }),
        field(query, "highest", "to", { type: "number" })),
      choice(query, "order", "Order", [["", "newest first"], ["oldest", "oldest first"], ["best", "best reward first"],
        ["worst", "worst reward first"], ["longest", "most tokens first"]]),
      h("button", { type: "button", id: "clear", disabled: !set, onclick: () => { location.hash = M.link("games", { run: M.runOf(query) }); } }, "Clear"));
  }

  M.marks = (row) => [
    row.faults > 0 && h("span", { class: "chip bad", title: M.plain(row.causes) }, `${row.faults} fault${row.faults > 1 ? "s" : ""}`),
    row.cut > 0 && h("span", { class: "chip warn", title: `${row.cut} of ${row.completions} completions are cut off` }, `${row.cut} cut`),
  ];
  M.solved = (success) => success === null ? h("span", { class: "dim" }, "–")
    : h("span", { class: success === 1 ? "good" : success === 0 ? "bad" : "" }, M.percent(success));

  const letters = (text) => text.replace(/[^\p{L}\p{N}]+/gu, " ").trim();
  const same = (row) => letters(row.task) === letters(row.excerpt);

  function table(run, rows, query) {
    const agent = query.get("agent");
    const open = (id) => M.link("game", { run, id });
    return h("section", { class: "panel" }, h("table", { class: "games", id: "list" },
      h("thead", {}, h("tr", {}, h("th", { class: "num" }, "Step"), h("th", {}, "Task"),
        h("th", { class: "num" }, agent ? `Reward of ${agent}` : "Reward"), h("th", { class: "num" }, "Success"),
        h("th", { class: "num wide" }, "Turns"), h("th", { class: "num wide" }, "Tokens"))),
      h("tbody", {}, rows.map((row) => h("tr", { "data-open": open(row.id) },
        h("td", { class: "num" }, String(row.step)),
        h("td", { class: "task" }, h("a", { href: open(row.id) }, M.few(row.task, 90)), M.marks(row),
          h("div", { class: "small dim excerpt" }, row.kind === "train" ? "" : `${KINDS[row.kind] || row.kind}${same(row) ? "" : ": "}`, same(row) ? "" : row.excerpt)),
        h("td", { class: "num" }, M.fixed(row.reward)), h("td", { class: "num" }, M.solved(row.success)),
        h("td", { class: "num wide" }, M.fixed(row.turns, 1)), h("td", { class: "num wide" }, M.number(row.tokens)))))));
  }

  function pager(query, found) {
    const first = found.start + 1, last = found.start + found.games.length;
    const to = (start) => () => { location.hash = M.link("games", parameters(query, { start: start || null })); };
    return h("div", { class: "head" },
      h("span", { class: "dim", id: "count" }, found.total ? `${M.number(first)}–${M.number(last)} of ${M.number(found.total)} games` : "0 games"),
      h("span", { class: "push" }),
      h("button", { type: "button", disabled: found.start === 0, onclick: to(Math.max(found.start - PAGE, 0)) }, "Previous"),
      h("button", { type: "button", id: "more", disabled: last >= found.total, onclick: to(found.start + PAGE) }, "Next"));
  }

  M.runPicker = (view, run, more) => M.runs.length > 1
    ? M.select("Run", M.runs.map((one) => [one.name, one.name]), run, (name) => { location.hash = M.link(view, { run: name, ...more }); })
    : h("h1", {}, run);

  M.views.games = async function (query) {
    const run = M.runOf(query);
    const found = await M.get("games", parameters(query, { count: PAGE }));
    const about = M.runs.find((one) => one.name === run);
    let nothing = "No game matches these filters.";
    if (!found.choices.kinds.length) {
      nothing = about.indexing !== null && about.indexing !== undefined ? "The games are being indexed: they appear here as they are found."
        : "This run has recorded no games yet. report.episodes: all records every training step.";
    }
    const notes = about.notes.map((note) => h("p", { class: "note" }, note));
    if (about.left_out) notes.push(h("p", { class: "note" }, `This export leaves out ${M.number(about.left_out)} games of this run.`));
    const folded = h("details", { class: "fold", open: window.innerWidth > 640 || FILTERS.some((name) => query.get(name)) },
      h("summary", {}, "Filters"), filters(query, found.choices));
    return {
      title: `Games of ${run}`, runs: [run],
      nodes: [h("div", { class: "head" }, M.runPicker("games", run)), ...notes, folded, pager(query, found),
        found.games.length ? table(run, found.games, query) : h("section", { class: "panel" }, h("p", { class: "empty" }, nothing)),
        found.total > PAGE ? pager(query, found) : null],
      keys: { "/": () => { document.querySelector(".fold").open = true; document.getElementById("search").focus(); },
        j: () => M.move(1), k: () => M.move(-1), Enter: () => M.openMarked() },
    };
  };

  /* The row that the keys j and k have reached. */
  M.move = function (by) {
    const rows = [...document.querySelectorAll("#list tbody tr")];
    const at = rows.findIndex((row) => row.hasAttribute("aria-selected"));
    const next = rows[Math.min(Math.max(at + by, 0), rows.length - 1)];
    if (!next) return;
    rows[at]?.removeAttribute("aria-selected");
    next.setAttribute("aria-selected", "true");
    next.scrollIntoView({ block: "nearest" });
  };
  M.openMarked = function () {
    const row = document.querySelector("#list tr[aria-selected]");
    if (row) location.hash = row.dataset.open;
  };
})(window.motet);
