"use strict";
/* What evaluations recorded about the team: who persuades whom, conventions, cross-play. */
(function (M) {
  const { h } = M;

  const panel = (title, about, ...body) => h("section", { class: "panel" },
    h("header", {}, h("h2", {}, title), about && h("span", { class: "small dim" }, about)), body);

  function bar(value) {
    const inside = h("span", {});
    inside.style.width = `${100 * Math.min(Math.max(value || 0, 0), 1)}%`;
    return h("span", { class: "bar", "aria-hidden": "true" }, inside);
  }

  function evaluationTable(found) {
    return panel("Held-out evaluations", "success with its 95 % interval where one was measured",
      h("div", { class: "scroll" }, h("table", { id: "evaluations" },
        h("thead", {}, h("tr", {}, h("th", {}, "Evaluation"), h("th", { class: "num" }, "Success"), h("th", { class: "barred" }, ""),
          h("th", { class: "num" }, "Reward"), h("th", { class: "num" }, "Tasks"), h("th", { class: "num" }, "Faults"))),
        h("tbody", {}, found.map((one) => {
          const ends = one.interval && one.interval.success;
          return h("tr", {}, h("td", {}, one.title),
            h("td", { class: "num" }, M.percent(one.success), ends && h("div", { class: "small dim" }, `${M.percent(ends[0])} to ${M.percent(ends[1])}`)),
            h("td", { class: "barred" }, one.success !== null && bar(one.success)), h("td", { class: "num" }, M.fixed(one.reward)),
            h("td", { class: "num" }, M.number(one.episodes)), h("td", { class: "num" }, M.number(one.faults)));
        })))));
  }

  function rightByTurn(one) {
    const turns = one.influence.turns;
    const agents = Object.keys(turns[0].right);
    const majority = turns.some((turn) => turn.majority !== null);
    const row = (label, values) => h("tr", {}, h("th", { scope: "row" }, label), values.map((value) => M.heat(h("td", { class: "num" }, M.percent(value)), value || 0)));
    return h("table", { class: "matrix" }, h("thead", {}, h("tr", {}, h("th", {}, "Right answers"), turns.map((_, at) => h("th", { class: "num" }, `turn ${at + 1}`)))),
      h("tbody", {}, agents.map((agent) => row(agent, turns.map((turn) => turn.right[agent]))),
        majority && row("majority", turns.map((turn) => turn.majority))));
  }

  function pairs(one, share, count, title) {
    const agents = [...new Set(one.influence.pairs.map((pair) => pair.speaker))];
    const cell = (speaker, listener) => {
      const pair = one.influence.pairs.find((other) => other.speaker === speaker && other.listener === listener);
      if (!pair) return h("td", { class: "num dim" }, "");
      const place = h("td", { class: "num" }, M.percent(pair[share]), h("div", { class: "small dim" }, `of ${M.number(pair[count])}`));
      return pair[share] === null ? place : M.heat(place, pair[share], share === "misled" ? "rare" : "heat");
    };
    return h("table", { class: "matrix" }, h("thead", {}, h("tr", {}, h("th", {}, title), agents.map((agent) => h("th", { class: "num" }, `→ ${agent}`)))),
      h("tbody", {}, agents.map((speaker) => h("tr", {}, h("th", { scope: "row" }, speaker), agents.map((listener) => cell(speaker, listener))))));
  }

  function influence(one) {
    const overall = one.influence.overall;
    const shares = overall && [["improved", "wrong, then right"], ["declined", "right, then wrong"], ["kept_right", "stayed right"], ["kept_wrong", "stayed wrong"]];
    return panel(`Who is right, and who persuades whom: ${one.title}`, "",
      h("div", { class: "body matrices scroll" }, rightByTurn(one),
        one.influence.pairs.length > 0 && pairs(one, "persuaded", "persuadable", "Persuades"),
        one.influence.pairs.length > 0 && pairs(one, "misled", "misleadable", "Misleads"),
        shares && h("table", { class: "matrix" }, h("thead", {}, h("tr", {}, h("th", {}, "From turn to turn"), h("th", { class: "num" }, "answers"))),
          h("tbody", {}, shares.map(([name, said]) => h("tr", {}, h("th", { scope: "row" }, said), h("td", { class: "num" }, M.percent(overall[name]))))))));
  }

  function conventions(found) {
    const having = found.filter((one) => Object.keys(one.conventions).length);
    if (!having.length) return null;
    const agents = [...new Set(having.flatMap((one) => Object.keys(one.conventions)))];
    const share = (one, agent, label) => (one.conventions[agent] || {})[label] || 0;
    return panel("Conventions", "share of the first answers of each agent, by kind",
      h("div", { class: "body matrices scroll" }, agents.map((agent) => {
        const labels = [...new Set(having.flatMap((one) => Object.keys(one.conventions[agent] || {})))].slice(0, 12);
        return h("table", { class: "matrix" }, h("thead", {}, h("tr", {}, h("th", {}, agent), having.map((one) => h("th", { class: "num" }, one.title)))),
          h("tbody", {}, labels.map((label) => h("tr", {}, h("th", { scope: "row", class: "mono" }, label),
            having.map((one) => M.heat(h("td", { class: "num" }, M.percent(share(one, agent, label))), share(one, agent, label)))))));
      })));
  }

  function crossplay(one) {
    const short = (name) => name.split("/").at(-1);
    return panel(`Cross-play: ${one.title}`, `success of ${one.agents[0]} of the run on the left with the other agents of the run above`,
      h("div", { class: "body scroll" }, h("table", { class: "matrix" },
        h("thead", {}, h("tr", {}, h("th", {}, ""), one.runs.map((name) => h("th", { class: "num" }, short(name))))),
        h("tbody", {}, one.runs.map((name, row) => h("tr", {}, h("th", { scope: "row" }, short(name)),
          one.success[row].map((value) => M.heat(h("td", { class: "num" }, M.percent(value)), value))))))));
  }

  async function overTraining(run) {
    const { metrics } = await M.get("overview", { run });
    const wanted = [["Right answers by turn", /^play\/accuracy\/turn\d+$/], ["Persuaded (speaker/listener)", /^play\/persuaded\//], ["Misled (speaker/listener)", /^play\/misled\//]]
      .map(([title, pattern]) => [title, metrics.filter((name) => pattern.test(name)).slice(0, 8)]).filter(([, names]) => names.length);
    if (!wanted.length) return [];
    const curves = await M.get("curves", { run, metric: wanted.flatMap(([, names]) => names) });
    const none = { alarms: [], faults: [] };
    return [h("h2", {}, "Over the training"), h("div", { class: "charts" }, wanted.map(([title, names]) => M.chart(title,
      names.map((name, slot) => ({ ...curves[name], label: name.split("/").slice(2).join("/"), slot })), none, "share")))];
  }

  const MORE = [
    ["Is it persuasion, or a second guess?", (run) => `motet evaluate ${run} --shuffle-turn 1 --json > ${run}/evaluations/shuffled.json`],
    ["Intervals, and more games", (run) => `motet evaluate ${run} --samples 10 --json > ${run}/evaluations/ten-games.json`],
    ["Does this team play with another?", (run) => `motet crossplay ${run} OTHER --json > ${run}/evaluations/crossplay.json`],
  ];

  M.views.team = async function (query) {
    const run = M.runOf(query);
    const [found, curves] = await Promise.all([M.get("team", { run }), overTraining(run)]);
    const debated = found.evaluations.filter((one) => one.influence);
    const folder = `runs/${run}`;
    return {
      title: `Team of ${run}`, runs: [run],
      nodes: [
        h("div", { class: "head" }, M.runPicker("team", run)),
        found.unreadable.map((line) => h("p", { class: "note" }, line)),
        found.evaluations.length ? evaluationTable(found.evaluations)
          : h("section", { class: "panel" }, h("p", { class: "empty" }, "No evaluation yet: the summary of a run has those before and after training.")),
        debated.map(influence), curves, conventions(found.evaluations), found.crossplays.map(crossplay),
        h("section", { class: "panel" }, h("details", { class: "body", open: !debated.length && !found.crossplays.length },
          h("summary", {}, "Measure more"), h("p", { class: "dim gap" }, `Results saved in ${folder}/evaluations appear here (mkdir -p ${folder}/evaluations first).`),
          MORE.map(([title, command]) => h("div", { class: "gap" }, h("div", {}, title), h("pre", { class: "mono" }, command(folder)))))),
      ],
    };
  };
})(window.motet);
