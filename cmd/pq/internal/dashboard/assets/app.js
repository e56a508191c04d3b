// What a page does beyond links and forms: it changes by itself while somebody looks at it, draws
// charts, selects items, and can be used from the keyboard. Nothing here makes HTML of values: all
// HTML comes from the server, which has escaped it.
"use strict";

(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

  const act = $("#act");

  // parsed is HTML of the server that is not part of the page yet.
  function parsed(html) {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content;
  }

  // --- Events: one stream while the page is visible, opened again with growing pauses.

  let stream = null, streamURL = "", failures = 0, retry = 0;

  function eventsURL() {
    const from = $("[data-events]");
    return from ? from.dataset.events : "";
  }

  function listen() {
    const url = document.hidden ? "" : eventsURL();
    if (url === streamURL && stream) return;
    close();
    if (!url) return;

    streamURL = url;
    stream = new EventSource(url);
    stream.addEventListener("patch", (e) => {
      if (url !== eventsURL()) return listen(); // of a table that is no longer shown
      alive();
      patch(e.data);
    });
    stream.addEventListener("series", (e) => { alive(); addToChart(JSON.parse(e.data)); });
    stream.onerror = () => { close(); lost(); };
  }

  function close() {
    clearTimeout(retry);
    if (stream) stream.close();
    stream = null;
    streamURL = "";
  }

  function alive() {
    failures = 0;
    $$(".lost").forEach((el) => el.classList.remove("lost"));
  }

  function lost() {
    const seconds = Math.min(2 ** failures++, 30);
    retry = setTimeout(listen, seconds * (800 + 400 * Math.random()));
    if (failures === 1) return; // a server that restarts is back at once
    const status = $("#status");
    if (status) {
      status.className = "lost";
      $(".lamp", status).textContent = `no dashboard, next try in ${seconds} s`;
    }
    // A session that has ended shows as a redirection to the login.
    fetch(location.href, { method: "HEAD", redirect: "manual", cache: "no-store" })
      .then((r) => { if (r.type === "opaqueredirect") location.reload(); }, () => {});
  }

  // patch changes the elements that the HTML has, by their ids. They stay the same elements, which an
  // answer that is under way may be for. Rows come in a table without an id.
  function patch(html) {
    for (const now of [...parsed(html).children].flatMap((el) => (el.matches("table:not([id])") ? [...el.rows] : [el]))) {
      const was = now.id && document.getElementById(now.id);
      if (!was || typedIn(was)) continue;
      if (was.dataset.events) now.dataset.events = was.dataset.events;
      const focused = was.contains(document.activeElement) ? place(was, document.activeElement) : null;
      for (const name of was.getAttributeNames()) if (!now.hasAttribute(name)) was.removeAttribute(name);
      for (const { name, value } of now.attributes) was.setAttribute(name, value);
      was.replaceChildren(...now.childNodes);
      if (window.htmx) htmx.process(was);
      if (focused) { const again = $(focused, was); if (again) again.focus({ preventScroll: true }); }
    }
  }

  // typedIn says whether somebody is about to fill in a form.
  function typedIn(el) {
    return $$("input:not([type=hidden], [type=checkbox])", el).some((i) => i === document.activeElement || i.value !== i.defaultValue);
  }

  // place is a selector of a link within an element that is about to be replaced.
  function place(within, el) {
    return el !== within && el.matches("a[href]") ? `a[href="${CSS.escape(el.getAttribute("href"))}"]` : null;
  }

  document.addEventListener("visibilitychange", listen);
  addEventListener("pagehide", close);
  addEventListener("pageshow", (e) => { if (e.persisted) listen(); });

  // --- Charts

  const charts = new Map();
  const keep = 900; // points

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const figure = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

  function draw(el, series) {
    const old = charts.get(series.id);
    if (old) old.plot.destroy();
    $$("svg, .empty", el).forEach((fallback) => fallback.remove());

    const ink = colour("--ink"), soft = colour("--soft"), rule = colour("--rule");
    const styles = [
      { stroke: ink, width: 1.5 },
      { stroke: colour("--accent"), width: 1.5 },
      { stroke: soft, width: 1.5, dash: [4, 3] },
    ];
    const axis = { stroke: soft, font: `11px ${getComputedStyle(el).fontFamily}`, ticks: { show: false } };
    const plot = new uPlot({
      width: el.clientWidth, height: 170,
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
      legend: { live: true }, padding: [8, 4, 0, 0],
      scales: {
        x: { range: (_, from, to) => { const end = to ?? Date.now() / 1000; return [Math.min(from ?? end, end - 120), end]; } },
        y: { range: (_, least, most) => [Math.min(least || 0, 0), Math.max(most || 0, 1) * 1.08] },
      },
      axes: [
        { ...axis, grid: { show: false }, space: 60, size: 26, incrs: [60, 120, 300, 600, 1800, 3600], values: (_, at) => at.map((t) => clock(t)) },
        { ...axis, grid: { stroke: rule, width: 1 }, size: 46, space: 34, values: (_, ns) => ns.map((n) => compact.format(n)) },
      ],
      series: [
        { label: "", value: (_, t) => (t == null ? "now" : clock(t, true)) },
        ...series.names.map((label, i) => ({
          label, ...styles[i % styles.length], points: { show: (u) => u.data[0].length < 2, size: 4 },
          value: (u, n) => figure.format(n ?? lastOf(u.data[i + 1]) ?? 0),
        })),
      ],
    }, [series.at, ...series.lines], el);
    charts.set(series.id, { el, series, plot });
    if (!old) resizes.observe(el);
  }

  const lastOf = (line) => line[line.length - 1];

  function clock(t, seconds) {
    return new Date(t * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: seconds ? "2-digit" : undefined });
  }

  const resizes = new ResizeObserver((entries) => {
    const changed = entries.map((e) => e.target);
    requestAnimationFrame(() => {
      for (const { el, plot } of charts.values()) {
        if (changed.includes(el) && el.clientWidth !== plot.width) plot.setSize({ width: el.clientWidth, height: 170 });
      }
    });
  });

  function addToChart(more) {
    const chart = charts.get(more.id);
    if (!chart) return;
    const s = chart.series;
    if (more.reset) {
      s.at = more.at;
      s.lines = more.lines;
    } else {
      s.at = s.at.concat(more.at).slice(-keep);
      s.lines = s.lines.map((line, i) => line.concat(more.lines[i]).slice(-keep));
    }
    chart.plot.setData([s.at, ...s.lines]);
  }

  function drawAll() {
    if (!window.uPlot) return;
    for (const el of $$(".chart[data-series]")) {
      const series = JSON.parse(el.dataset.series);
      if (series.names) draw(el, charts.has(series.id) ? charts.get(series.id).series : series);
    }
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);

  // --- Selection of items

  let lastPicked = null;

  const picks = () => $$('#bulk input[name="ids"]');

  function showPicked() {
    const bulk = $("#bulk");
    if (!bulk) return;
    const all = picks(), picked = all.filter((p) => p.checked).length;
    const match = $("[data-pick-match]", bulk), head = $("[data-pick-all]", bulk), text = $("[data-picked]", bulk);

    if (head) {
      head.hidden = false;
      head.checked = picked > 0 && picked === all.length;
      head.indeterminate = picked > 0 && picked < all.length;
    }
    if (text) text.textContent = match && match.checked ? "" : picked ? `${picked} selected` : "None selected";
    $$(".acts button", bulk).forEach((b) => { b.disabled = !picked && !(match && match.checked); });
  }

  function pick(box, checked, range) {
    const all = picks(), to = all.indexOf(box), from = all.indexOf(lastPicked);
    const part = range && from >= 0 ? all.slice(Math.min(from, to), Math.max(from, to) + 1) : [box];
    part.forEach((p) => { p.checked = checked; });
    lastPicked = box;
    const match = $("[data-pick-match]");
    if (match) match.checked = false;
    showPicked();
  }

  function pickAll(checked) {
    picks().forEach((p) => { p.checked = checked; });
    showPicked();
  }

  document.addEventListener("click", (e) => {
    const box = e.target.closest('#bulk input[name="ids"]');
    if (box) pick(box, box.checked, e.shiftKey);
    if (e.target.matches("[data-pick-all]")) pickAll(e.target.checked);
    if (e.target.matches("[data-pick-match]")) {
      if (e.target.checked) picks().forEach((p) => { p.checked = false; });
      showPicked();
    }
  });

  // What was selected stays so when the list is loaded again.
  let selected = new Set();
  document.addEventListener("htmx:beforeSwap", (e) => {
    const { target, xhr, requestConfig } = e.detail;
    // A form whose answer is no form, such as when the session has ended, keeps what was typed.
    if (requestConfig.verb !== "get" && xhr.status >= 400 && target !== act && !xhr.responseText.includes(`id="${target.id}"`)) {
      e.detail.shouldSwap = false;
      say(parsed(xhr.responseText).textContent.trim() || "That did not work.");
    }
    // A list that asks for itself again stays as it is while the server cannot answer.
    if (requestConfig.verb === "get" && xhr.status >= 500) e.detail.shouldSwap = false;
    if (target.id === "items") selected = new Set(picks().filter((p) => p.checked).map((p) => p.value));
  });

  // --- Dialogs

    document.addEventListener("htmx:afterSwap", (e) => {
    if (e.detail.target !== act || !act.firstElementChild) return;
    if (!act.open) act.showModal();
    const first = $("[autofocus], button.main, .button.main", act);
    if (first) first.focus();
  });

  act.addEventListener("close", () => {
    const done = $("[data-done]", act);
    act.replaceChildren();
    if (!done) return;
    if ($("#bulk") || $("#purge")) location.reload();
    else location.assign(done.querySelector("[data-close]").href);
  });

  document.addEventListener("click", (e) => {
    const closer = e.target.closest("[data-close]");
    if (closer && act.open) { e.preventDefault(); act.close(); }
    const opener = e.target.closest("[data-open]");
    if (opener) document.getElementById(opener.dataset.open).showModal();
    const copier = e.target.closest("[data-copy]");
    if (copier) {
      navigator.clipboard.writeText(document.getElementById(copier.dataset.copy).innerText)
        .then(() => { copier.textContent = "Copied"; }, () => { copier.textContent = "Not copied"; });
    }
  });

  // --- When an answer does not come, nothing that was typed is lost.

  let notice = 0;

  function say(text) {
    let el = $(".notice");
    if (!el) {
      el = document.createElement("p");
      el.className = "notice";
      el.setAttribute("role", "alert");
    }
    el.textContent = text;
    ($("dialog[open]") || document.body).append(el);
    clearTimeout(notice);
    notice = setTimeout(() => el.remove(), 8000);
  }

  for (const name of ["htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(name, (e) => {
      if (e.detail.requestConfig.verb !== "get") say("The dashboard did not answer. Nothing you typed is lost: try again.");
    });
  }

  // --- Keyboard

  const rows = () => $$("table.list tbody tr").filter((tr) => tr.offsetParent && $("a[href]", tr));
  const typing = (el) => el.matches("textarea, select, [contenteditable]") || (el.matches("input") && !/^(checkbox|radio|button)$/.test(el.type));
  let prefix = "";

  function step(by) {
    const all = rows(), here = all.findIndex((tr) => tr.contains(document.activeElement));
    const next = all[here < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(here + by, 0), all.length - 1)];
    if (next) $("a[href]", next).focus();
  }

  const go = (selector) => { const a = $(selector); if (a) a.click(); };

  const keys = {
    j: () => step(1),
    k: () => step(-1),
    x: (e) => {
      const row = document.activeElement.closest("tr"), box = row && $('input[name="ids"]', row);
      if (box) pick(box, !box.checked, e.shiftKey);
    },
    "*": () => pickAll(!picks().every((p) => p.checked)),
    n: () => go('a[rel="next"]'),
    p: () => go('a[rel="prev"]'),
    u: () => go("a[data-up]"),
    i: () => go("a[data-items]"),
    "/": () => { const find = $("[data-find]"); if (find) { find.focus(); find.select(); } },
    "?": () => $("#keys").showModal(),
    "g q": () => location.assign("/"),
    "g d": () => location.assign("/dead"),
    "g b": () => location.assign("/bridges"),
  };

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || $("dialog[open]")) return;
    if (typing(e.target)) {
      if (e.key === "Escape") e.target.blur();
      return;
    }
    const key = prefix + (e.key === "X" ? "x" : e.key);
    prefix = e.key === "g" && !prefix ? "g " : "";
    if (prefix) { setTimeout(() => { prefix = ""; }, 1200); return; }
    if (keys[key]) { e.preventDefault(); keys[key](e); }
  });

  // --- Start

  function ready() {
    $$("button[hidden][data-open], button[hidden][data-copy]").forEach((b) => { b.hidden = false; });
    showPicked();
    listen();
  }

  document.addEventListener("htmx:afterSettle", (e) => {
    if (e.detail.target.id === "items" || e.detail.elt.id === "items") {
      picks().forEach((p) => { p.checked = selected.has(p.value); });
    }
    ready();
  });

  drawAll();
  ready();
})();
