"use strict";
/* Questions to the server, or to the files of an export; the address of a view. */
(function (M) {
  M.exported = window.motetExport || null;

  M.get = async function (path, parameters) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(parameters || {})) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== null && one !== undefined && one !== "") query.append(name, one);
      }
    }
    if (M.exported) return M.offline(path, query);
    let response;
    try {
      response = await fetch(`api/${path}?${query}`);
    } catch (error) {
      M.lost(true);
      throw new Error("The server does not answer. Was motet view stopped?");
    }
    M.lost(false);
    const answer = await response.json();
    if (!response.ok) {
      const said = answer.error || (answer.detail && answer.detail[0] && answer.detail[0].msg);
      throw new Error(said || `status ${response.status}`);
    }
    return answer;
  };

  M.lost = function (lost) {
    const banner = document.getElementById("banner");
    banner.hidden = !lost;
    banner.textContent = lost ? "The server does not answer: was motet view stopped? The page tries again." : "";
  };

  /* "#/games?run=a&text=x" -> {view: "games", query: URLSearchParams} */
  M.address = function () {
    const [view, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
    return { view: view || "overview", query: new URLSearchParams(query || "") };
  };

  M.link = function (view, parameters) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(parameters || {})) {
      for (const one of Array.isArray(value) ? value : [value]) {
        if (one !== null && one !== undefined && one !== "") query.append(name, one);
      }
    }
    const text = query.toString();
    return `#/${view}${text ? "?" + text : ""}`;
  };

  /* Change the address without a new entry in the history and without drawing again. */
  M.replace = (view, parameters) => history.replaceState(null, "", M.link(view, parameters));

  M.runOf = function (query) {
    const wanted = query.get("run");
    const names = M.runs.map((run) => run.name);
    if (wanted !== null && names.includes(wanted)) return wanted;
    const withGames = M.runs.find((run) => run.games > 0);
    return (withGames || M.runs[0]).name;
  };
})(window.motet);
