// What a page does beyond links and forms: it changes by itself while somebody looks at it, draws
// charts, selects items, and can be used from the keyboard. Nothing here makes HTML of values: all
// HTML comes from the server, which has escaped it.
"use strict";

(() => {
  const $ = (selector, from = document) => from.querySelector(selector);
  const $$ = (selector, from = document) => [...from.querySelectorAll(selector)];

  const act = $("#act");

  // A property of a form, such as its id, is the control with that name if it has one; an attribute is not.
  const idOf = (node) => node.getAttribute?.("id");

  const parsed = (html) => new DOMParser().parseFromString(html, "text/html");

  // --- A visible page asks for itself again and again, and changes where it is no longer the same.

  let timer = 0, turn = 0;

  function refreshSoon() {
    clearTimeout(timer);
    const every = $("#as-of")?.dataset.refresh;
    if (every && !document.hidden) timer = setTimeout(refresh, every);
  }

  async function refresh() {
    clearTimeout(timer);
    if (document.hidden) return;
    const url = location.href, mine = ++turn;
    let answer, page;
    try {
      answer = await fetch(url, { redirect: "manual", cache: "no-store", signal: AbortSignal.timeout(15000) });
      page = parsed(await answer.text());
    } catch {}
    if (mine !== turn || document.hidden || url !== location.href) return refreshSoon(); // or the answer is about something else

    const sessionEnded = answer?.type === "opaqueredirect"; // to the login
    if (sessionEnded && !$$("form").some(inUse)) return location.reload();
    if (page?.getElementById("status")) {
      // What could not be found out stays as it was, and says as of when.
      const at = place($("#main"));
      hold();
      for (const id of answer.status >= 500 ? ["status"] : ["status", "as-of", "main"]) morph(document.getElementById(id), page.getElementById(id));
      land($("#main"), at);
      ready();
    } else {
      lost(sessionEnded ? "Your session has ended: log in again in another tab." : "The dashboard does not answer. What is shown is as of the time above.");
    }
    refreshSoon();
  }

  function lost(why) {
    $("#status").className = "lost";
    $("#status .lamp").textContent = "lost";
    $("#status .banner").textContent = why;
    $("#status .banner").hidden = false;
  }

  // morph makes an element like another. What is the same stays the same element, with its focus and selection,
  // and with what was typed or unfolded. Children with ids are found again wherever they are.
  function morph(was, now) {
    if (was.isEqualNode(now) || was.matches("noscript, .htmx-request") || (was.matches("form") && inUse(was))) return;
    for (const { name } of [...was.attributes]) if (!now.hasAttribute(name) && !["open", "style"].includes(name)) was.removeAttribute(name);
    for (const { name, value } of now.attributes) if (was.getAttribute(name) !== value) was.setAttribute(name, value);
    if (was.matches(".chart")) return; // drawn here

    const focused = document.activeElement;
    const known = new Map([...was.children].filter(idOf).map((el) => [idOf(el), el]));
    let at = was.firstChild;
    for (const node of [...now.childNodes]) {
      const same = idOf(node) ? known.get(idOf(node)) : at && !idOf(at) && at.nodeName === node.nodeName ? at : null;
      known.delete(idOf(node));
      if (same && same === at) at = at.nextSibling;
      else was.insertBefore(same ?? node, at);
      if (same?.nodeType === Node.ELEMENT_NODE) morph(same, node);
      else if (same && same.nodeValue !== node.nodeValue) same.nodeValue = node.nodeValue;
    }
    while (at) { const rest = at; at = at.nextSibling; rest.remove(); }
    if (was.matches("select")) was.selectedIndex = preset(was); // also one that was changed, and changed back
    else if (was.defaultValue !== undefined) was.value = was.defaultValue;
    if (focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true }); // it was moved
  }

  // What gets shorter keeps its height, so that what is below it stays in place until the page is left.
  function hold() {
    $$("[data-steady]").forEach((el) => { el.style.minHeight = `${el.getBoundingClientRect().height}px`; });
  }

  addEventListener("resize", () => $$("[data-steady]").forEach((el) => { el.style.minHeight = ""; }));

  // preset is the choice that a page came with.
  const preset = (select) => Math.max([...select.options].findIndex((o) => o.defaultSelected), 0);

  // inUse says whether somebody is filling in a form, or reads what came of it.
  function inUse(form) {
    const changed = (i) => i.matches("select") ? i.selectedIndex !== preset(i) : i.defaultValue !== undefined && i.value !== i.defaultValue;
    const typed = (i) => i === document.activeElement || changed(i);
    return $(".err, .done", form) || $$("input:not([type=hidden], [type=checkbox], [type=radio]), textarea, select", form).some(typed);
  }

  document.addEventListener("visibilitychange", refresh);
  addEventListener("pageshow", (e) => { if (e.persisted) refresh(); });

  // --- Charts

  const charts = new Map();

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const figure = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

  function draw(el, series) {
    const old = charts.get(series.id);
    if (old) old.plot.destroy();
    $$("svg, .hint", el).forEach((fallback) => fallback.remove());

    const ink = colour("--ink"), soft = colour("--soft"), rule = colour("--rule");
    const style = (name) => ({
      stroke: { ready: ink, pushed: ink, delayed: soft, popped: soft }[name] ?? colour("--accent"),
      width: 1.5, dash: { delayed: [4, 3], popped: [4, 3] }[name],
    });
    const axis = { stroke: soft, font: `11px ${getComputedStyle(el).fontFamily}`, ticks: { show: false } };
    const plot = new uPlot({
      width: el.clientWidth, height: 170,
      cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
      legend: { live: true }, padding: [8, 16, 0, 0],
      scales: {
        x: { range: (_, from, to) => { const end = to ?? Date.now() / 1000; return [Math.min(from ?? end, end - 120), end]; } },
        y: { range: (_, least, most) => [Math.min(least || 0, 0), Math.max(most || 0, 1) * 1.08] },
      },
      axes: [
        { ...axis, grid: { show: false }, space: 60, size: 26, incrs: [60, 120, 300, 600, 1800, 3600], values: (_, at) => at.map((t) => clock(t)) },
        { ...axis, grid: { stroke: rule, width: 1 }, size: 46, space: 34, values: (_, ns) => ns.map((n) => compact.format(n)) },
      ],
      series: [
        { label: "", value: (_, t) => (t == null ? "" : clock(t, true)) },
        ...series.names.map((label) => ({
          label, ...style(label), points: { show: (u) => u.data[0].length < 2, size: 4 },
          // The figures of now are above: these are of the time under the pointer.
          value: (_, n, i, at) => (at == null ? "" : n == null ? "—" : figure.format(n)),
        })),
      ],
    }, [series.at, ...series.lines], el);
    charts.set(series.id, { el, plot });
    if (!old) resizes.observe(el);
  }

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

  // showCharts draws those that are new, or all of them again, and gives the others what is new.
  function showCharts(again) {
    for (const el of window.uPlot ? $$(".chart[data-series]") : []) {
      const series = JSON.parse(el.dataset.series), chart = charts.get(series.id);
      if (!chart && !series.at.length) continue; // nothing is known yet
      if (chart?.el === el && !again) chart.plot.setData([series.at, ...series.lines]);
      else draw(el, series);
    }
  }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => showCharts(true));

  // --- Times of schedules are those of the viewer; the title has UTC.

  const local = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });

  function showLocal() {
    $$("time[data-local]").forEach((el) => {
      const text = local.format(new Date(el.dateTime));
      if (el.textContent !== text) el.textContent = text;
    });
  }

  // --- Focus stays where it was when what had it is replaced: on the same stop of the Tab key, or the last one.

  const stops = (scope) => $$("a[href], summary, input:not([type=hidden]), select, textarea, button", scope)
    .filter((el) => !el.disabled && el.checkVisibility());
  const place = (scope) => stops(scope).indexOf(document.activeElement);

  function land(scope, at) {
    if (at < 0 || document.activeElement !== document.body) return;
    const all = stops(scope), main = $("#main");
    main.tabIndex = -1;
    (all[Math.min(at, all.length - 1)] ?? main).focus({ preventScroll: true });
  }

  // held is where the focus was when a form was sent: the id of an element, and the stop in it. The first field with
  // an error goes before that.
  let held = null;

  const invalid = '[aria-invalid="true"]';

  document.addEventListener("htmx:beforeRequest", (e) => {
    const { target, requestConfig } = e.detail, scope = target === act ? $("#main") : target;
    if (requestConfig.verb !== "get" && !act.open) held = { id: idOf(scope), at: place(scope) };
  });

  function landHeld() {
    const scope = held && document.getElementById(held.id);
    const wrong = scope && $(invalid, scope);
    if (wrong) wrong.focus();
    else if (scope) land(scope, held.at);
    held = null;
  }

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

  document.addEventListener("htmx:beforeSwap", (e) => {
    const { target, xhr, requestConfig } = e.detail;
    if (requestConfig.verb === "get") { // a filter
      if (xhr.status >= 400 || !parsed(xhr.responseText).getElementById(idOf(target))) e.detail.shouldSwap = false;
      return;
    }
    // A form whose answer is no form, such as when the session has ended, keeps what was typed.
    const answer = parsed(xhr.responseText);
    if (xhr.status >= 400 && !$(target === act ? "#main" : `#${idOf(target)}`, answer)) {
      e.detail.shouldSwap = false;
      say(answer.body.textContent.trim() || "That did not work.");
    }
  });

  // The second click of a double click is not one on the button that the answer to the first has put there.
  let answered = -Infinity;
  document.addEventListener("htmx:afterSwap", (e) => { if (e.detail.requestConfig.verb !== "get") answered = e.timeStamp; });
  document.addEventListener("click", (e) => {
    const isPointer = e.detail > 0, isButton = e.target.closest("form button, a.button");
    if (!isPointer || !isButton || e.timeStamp - answered > 500) return;
    e.preventDefault();
    e.stopImmediatePropagation();
  }, true);

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
    if (!done) return landHeld();
    sessionStorage.setItem("held", JSON.stringify(held));
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

  const opener = "th a[href], th button";
  const rows = () => $$("table.list tbody tr").filter((tr) => tr.offsetParent && $(opener, tr));
  const typing = (el) => el.matches("textarea, select, [contenteditable]") || (el.matches("input") && !/^(checkbox|radio|button)$/.test(el.type));
  let prefix = "";

  function step(by) {
    const all = rows(), here = all.findIndex((tr) => tr.contains(document.activeElement));
    const next = all[here < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(here + by, 0), all.length - 1)];
    if (next) $(opener, next).focus();
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
    "g y": () => location.assign("/busy"),
    "g s": () => location.assign("/schedules"),
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
    showCharts(false);
    showLocal();
    if (window.htmx) htmx.process(document.body);
  }

  document.addEventListener("htmx:afterSettle", () => { ready(); if (!act.open) landHeld(); });

  ready();
  held = JSON.parse(sessionStorage.getItem("held"));
  sessionStorage.removeItem("held");
  landHeld();
  if (document.activeElement === document.body) $(invalid)?.focus();
  refreshSoon();
})();
