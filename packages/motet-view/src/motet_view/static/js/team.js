"use strict";
/* What evaluations recorded about the team: controls, who persuades whom, baselines, cross-play. */
(function (M) {
  const { h } = M;

  const panel = (title, about, ...body) => h("section", { class: "panel" },
    h("header", {}, h("h2", {}, title), about && h("span", { class: "small dim" }, about)), body);

  function bar(value) {
    const inside = h("span", {});
    inside.style.width = `${100 * Math.min(Math.max(value || 0, 0), 1)}%`;
    return h("span", { class: "bar", "aria-hidden": "true" }, inside);
  }

  const span = (low, high) => h("div", { class: "small dim" }, `${M.percent(low)} to ${M.percent(high)}`);
  const share = (value, ends) => h("td", { class: "num" }, M.percent(value), ends && span(ends[0], ends[1]));
  const barred = (value) => h("td", { class: "barred" }, value !== null && value !== undefined && bar(value));
  const options = (one) => one.options.length > 0 && h("div", { class: "small dim" }, one.options.join(" "));

  function evaluationTable(found) {
    return panel("Held-out evaluations", "success with its 95 % interval where one was measured",
      h("div", { class: "scroll" }, h("table", { id: "evaluations" },
        h("thead", {}, h("tr", {}, h("th", {}, "Evaluation"), h("th", { class: "num" }, "Step"), h("th", { class: "num" }, "Success"), h("th", { class: "barred" }, ""),
          h("th", { class: "num" }, "Reward"), h("th", { class: "num" }, "Tasks"), h("th", { class: "num" }, "Faults"))),
        h("tbody", {}, found.map((one) => h("tr", {}, h("td", {}, one.title, options(one)), h("td", { class: "num" }, M.number(one.step)),
          share(one.success, one.interval && one.interval.success), barred(one.success), h("td", { class: "num" }, M.fixed(one.reward)),
          h("td", { class: "num" }, M.number(one.episodes)), h("td", { class: "num" }, M.number(one.faults))))))));
  }

  const points = (value) => value === null || value === undefined ? "–" : (100 * value).toFixed(0).replace("-", "−");

  /* The rows of a control follow the row of the same games with their real messages. */
  function controls(found) {
    const games = new Map();
    for (const one of found) {
      const key = JSON.stringify([one.step, one.options, one.messages.real]);
      games.set(key, [...(games.get(key) || []), one]);
    }
    const row = (title, more, figures, difference) => h("tr", {}, h("td", {}, title, more), share(figures.success, figures.interval && figures.interval.success),
      barred(figures.success), h("td", { class: "num" }, difference ? points(difference.mean) : "", difference && h("div", { class: "small dim" }, `${points(difference.low)} to ${points(difference.high)}`)),
      h("td", { class: "num" }, M.fixed(figures.reward)));
    return panel("Do the messages matter?", "success with the real messages, and with others in their place; 95 % intervals",
      h("div", { class: "scroll" }, h("table", { id: "controls" },
        h("thead", {}, h("tr", {}, h("th", {}, "Messages"), h("th", { class: "num" }, "Success"), h("th", { class: "barred" }, ""),
          h("th", { class: "num" }, "Lost (points)"), h("th", { class: "num" }, "Reward"))),
        h("tbody", {}, [...games.values()].map((group) => [
          row("as they are", [h("div", { class: "small dim" }, group[0].step !== null && `step ${M.number(group[0].step)}`), options(group[0])], group[0].messages.real, null),
          group.map((one) => row(one.title, null, one, one.messages.difference.success))])))));
  }

  function baselines(one) {
    const estimate = (found) => share(found && found.mean, found && [found.low, found.high]);
    return panel("Compared with baselines", [`${M.number(one.tasks)} held-out tasks`, ...one.options].join(" · "),
      h("div", { class: "scroll" }, h("table", { class: "baselines" },
        h("thead", {}, h("tr", {}, ["Protocol", "Success", "", "Reward", "n", "Tokens"].map((name, at) => h("th", { class: name ? (at ? "num" : null) : "barred" }, name)))),
        h("tbody", {}, one.rows.map((row) => h("tr", {}, h("td", {}, row.protocol), estimate(row.success), barred(row.success && row.success.mean),
          h("td", { class: "num" }, M.fixed(row.reward && row.reward.mean)), h("td", { class: "num" }, M.number(row.n)), h("td", { class: "num" }, M.number(row.tokens_per_task, 1))))))));
  }

  const BESIDE = { start: "Beside the start", other: "Beside another run", silent: "Beside mute agents" };

  function diagnosis(one) {
    const change = (found) => h("td", { class: "num" }, points(found && found.mean), found && found.low !== found.high && h("div", { class: "small dim" }, `${points(found.low)} to ${points(found.high)}`));
    const contributions = (part) => h("table", { class: "contributions" },
      h("thead", {}, h("tr", {}, h("th", {}, BESIDE[part.stand_in] || part.stand_in), ["Contributes", "", "Lost without it", "Gained by it alone"].map((name) => h("th", { class: name ? "num" : "barred" }, name)))),
      h("tbody", {}, Object.entries(part.agents).map(([agent, own]) => h("tr", {}, h("td", {}, agent), change(own.shapley), barred(own.shapley && own.shapley.mean), change(own.lost), change(own.alone))),
        h("tr", {}, h("td", { class: "dim" }, `all replaced, and the team: ${M.percent(part.replaced && part.replaced.mean)}, ${M.percent(part.whole && part.whole.mean)}`), h("td", { colspan: "4" }))));
    const sent = [...new Map(one.messages.map((each) => [`${each.sender} ${each.turn}`, each])).values()];
    const lost = (first, how) => { const found = one.messages.find((each) => each.sender === first.sender && each.turn === first.turn && each.replaced === how); return change(found && found.lost); };
    const messages = sent.length > 0 && h("table", { class: "messages" },
      h("thead", {}, h("tr", {}, h("th", {}, "Lost if others read, in place of a message"), ["nothing", "another one of the task", "that of another task"].map((name) => h("th", { class: "num" }, name)))),
      h("tbody", {}, sent.map((first) => h("tr", {}, h("td", {}, `${first.sender}, turn ${M.number(first.turn)}`), ["blank", "resampled", "shuffled"].map((how) => lost(first, how))))));
    const decided = Object.entries(one.own).filter(([, found]) => found !== null);
    const free = Object.entries(one.unearned).filter(([, value]) => value !== null);
    return panel("Who made the team good?", [`${one.measure} in points`, `${M.number(one.games)} games of each team`, "95 % intervals", ...one.options].join(" · "),
      h("div", { class: "scroll" }, one.contributions.map(contributions), messages),
      h("div", { class: "body small" },
        free.length > 0 && h("p", {}, `Reward that remains for an agent that says nothing: ${free.map(([agent, value]) => `${agent} ${M.percent(value)}`).join(", ")}`),
        decided.length > 0 && h("p", {}, `Share of an agent's returns that its own completion decides: ${decided.map(([agent, found]) => `${agent} ${M.percent(found.mean)}`).join(", ")}`),
        one.fidelity && h("p", {}, `Correlation of advantages with what completions change: ${M.fixed(one.fidelity.mean)} (${M.fixed(one.fidelity.low)} to ${M.fixed(one.fidelity.high)})`)));
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
    const part = (one, agent, label) => (one.conventions[agent] || {})[label] || 0;
    return panel("Conventions", "share of the first answers of each agent, by kind",
      h("div", { class: "body matrices scroll" }, agents.map((agent) => {
        const labels = [...new Set(having.flatMap((one) => Object.keys(one.conventions[agent] || {})))].slice(0, 12);
        return h("table", { class: "matrix" }, h("thead", {}, h("tr", {}, h("th", {}, agent), having.map((one) => h("th", { class: "num" }, one.title)))),
          h("tbody", {}, labels.map((label) => h("tr", {}, h("th", { scope: "row", class: "mono" }, label),
            having.map((one) => M.heat(h("td", { class: "num" }, M.percent(part(one, agent, label))), part(one, agent, label)))))));
      })));
  }

  function crossplay(one) {
    const last = one.runs.map((name) => String(name).split("/").at(-1));
    const short = (name, at) => last.filter((other) => other === last[at]).length > 1 ? name : last[at];
    const names = one.runs.map(short);
    const title = one.title === "crossplay" ? names.join(", ") : one.title;
    return panel(`Cross-play: ${title}`, `success of ${one.agents[0]} of the run on the left with the other agents of the run above`,
      h("div", { class: "body scroll" }, h("table", { class: "matrix" },
        h("thead", {}, h("tr", {}, h("th", {}, ""), names.map((name) => h("th", { class: "num" }, name)))),
        h("tbody", {}, names.map((name, row) => h("tr", {}, h("th", { scope: "row" }, name),
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

  const CONTROLS = "Do the messages matter? Is it persuasion, or a second guess?";
  const MORE = [
    [CONTROLS, (run) => `motet messages ${run} --shuffle-turn 1\nmotet messages ${run} --blank-turn 1`],
    ["Who contributes what? Is the credit faithful?", (run) => `motet diagnose ${run}`],
    ["Intervals, and more games", (run) => `motet evaluate ${run} --samples 10`],
    ["Are untrained protocols as good?", (run) => `motet baselines ${run}`],
    ["Does this team play with another?", (run) => `motet crossplay ${run} OTHER`],
  ];

  M.views.team = async function (query) {
    const run = M.runOf(query);
    const [found, curves] = await Promise.all([M.get("team", { run }), overTraining(run)]);
    const debated = found.evaluations.filter((one) => one.influence);
    const controlled = found.evaluations.filter((one) => one.messages);
    const plain = found.evaluations.filter((one) => !one.messages);
    const folder = `runs/${run}`;
    return {
      title: `Team of ${run}`, runs: [run],
      nodes: [
        h("div", { class: "head" }, M.runPicker("team", run)),
        found.unreadable.map((line) => h("p", { class: "note" }, line)),
        plain.length ? evaluationTable(plain)
          : h("section", { class: "panel" }, h("p", { class: "empty" }, "No evaluation yet: the summary of a run has those before and after training.")),
        controlled.length > 0 && controls(controlled), found.diagnoses.map(diagnosis), found.baselines.map(baselines),
        debated.map(influence), curves, conventions(plain), found.crossplays.map(crossplay),
        h("section", { class: "panel" }, h("details", { class: "body", open: !debated.length && !found.crossplays.length },
          h("summary", {}, "Measure more"), h("p", { class: "dim gap" }, `The results of these commands are kept in ${folder}/evaluations and appear here.`),
          MORE.filter(([title]) => title !== CONTROLS || found.turns > 1).map(([title, command]) => h("div", { class: "gap" }, h("div", {}, title), h("pre", { class: "mono" }, command(folder)))))),
      ],
    };
  };
})(window.motet);
