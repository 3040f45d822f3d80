// The page. It renders data only as text nodes, as other people may choose names and labels. The server sends
// all entries once, and then the last state of each entry that changes.
'use strict';

const narrow = matchMedia('(max-width: 640px)'); // as in style.css, which then gives a row two lines
let rowHeight = narrow.matches ? 52 : 28;
const spareRows = 8; // above and below the visible rows, so that fast scrolling shows no gaps
const silence = 45_000; // ms without a heartbeat, which comes every 15 s
const shownTransactions = 150;
const states = ['live', 'restoring', 'away', 'never-seen', 'unreadable'];
const whats = ['restored', 'saved', 'recorded']; // to choose from
const columns = [
  { id: 'name', title: 'Name', order: null },
  { id: 'state', title: 'State', order: (n) => states.length - states.indexOf(n.state) },
  { id: 'labels', title: 'Labels', number: true, order: (n) => -n.labels },
  { id: 'pending', title: 'Pending', number: true, order: (n) => -n.pending },
  { id: 'saved', title: 'Saved', order: (n) => -at(n.savedAt) },
  { id: 'last', title: 'Away or restored', order: (n) => -Math.max(at(n.awaySince), at(n.restoredAt)) },
];

const $ = (id) => document.getElementById(id);
const names = new Intl.Collator('en', { numeric: true });
const clock = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });

// h creates an element. Children that are strings become text, never HTML.
function h(tag, attributes = {}, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === 'onclick') e.addEventListener('click', value);
    else if (value !== undefined && value !== false) e.setAttribute(name, value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

// setText writes only changes, which avoids a new layout.
function setText(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

// --- state ---

const kinds = ['node', 'transaction', 'happening', 'replica', 'problem', 'meta'];
const nothing = () => Object.fromEntries(kinds.map((k) => [k, new Map()]));
let world = nothing();
let incoming = null; // the initial entries of a new stream, until all have arrived
let isReady = false;
let clockAhead = 0; // ms by which the clock of the server is ahead of the browser

function take(changes) {
  const into = incoming || world;
  for (const { kind, key, value } of changes) {
    const entries = into[kind];
    if (!entries) continue; // a kind of a newer server
    if (kind === 'transaction' && into === world && opened && [value, entries.get(key)].some((t) => t && t.node === opened)) detailStale();
    if (value === undefined) entries.delete(key);
    else entries.set(key, value);
    if (into === world) changed(kind, key);
  }
}

// isSynced reports whether all initial objects of the cluster are here.
const isSynced = () => !!(world.meta.get('cluster') || {}).synced;

const dirty = new Set(kinds);
let isOrderStale = true;
function changed(kind, key) {
  dirty.add(kind);
  if (kind === 'meta' && key === 'cluster') kinds.forEach((k) => dirty.add(k));
  if (kind === 'node' || kind === 'transaction') {
    if (kind === 'node' && key === opened) detailStale();
    isOrderStale = true;
    if (kind === 'node' && selector) matchStale();
  }
  if (kind === 'replica' && waits) detailStale(); // the node may wait for it
  requestRender();
}

// --- the stream ---

let stream, lastHeard;
function connect() {
  stream = new EventSource('/api/events');
  const on = (event, f) => stream.addEventListener(event, (e) => { lastHeard = Date.now(); f(JSON.parse(e.data)); });
  on('reset', () => { incoming = nothing(); if (!isReady) { world = incoming; incoming = null; } });
  on('changes', take);
  on('ready', ({ now }) => {
    clockAhead = now - Date.now();
    if (incoming) world = incoming;
    incoming = null;
    isReady = true;
    showConnection('connected', 'good');
    kinds.forEach((k) => dirty.add(k));
    isOrderStale = true;
    if (opened) detailStale();
    if (selector) matchStale(0); // labels may have changed meanwhile
    requestRender();
  });
  on('beat', ({ now }) => { clockAhead = now - Date.now(); });
  stream.onerror = () => {
    showConnection('reconnecting', 'warn');
    if (stream.readyState === EventSource.CLOSED) refused();
  };
  lastHeard = Date.now();
}
// refused distinguishes the end of the session from a server with too many pages, which a stream cannot.
async function refused() {
  const mayRead = await fetch('/style.css', { method: 'HEAD' }).then((answer) => answer.status !== 401, () => true);
  if (!mayRead) return showConnection('ended: open the last link that kubectl nodekeeper ui has printed', 'bad');
  showConnection('waiting: too many pages are open', 'warn');
  setTimeout(connect, 2_000);
}
function showConnection(text, how) {
  setText($('connection'), text);
  $('connection').className = 'pill ' + how;
}
setInterval(() => {
  if (stream.readyState !== EventSource.CLOSED && Date.now() - lastHeard > silence) {
    stream.close();
    showConnection('reconnecting', 'warn');
    connect();
  }
}, 5_000);

// --- times ---

function at(time) { return time ? Date.parse(time) : 0; }
function age(time) {
  if (!time) return '';
  const s = Math.max(0, (Date.now() + clockAhead - Date.parse(time)) / 1000);
  if (s < 120) return Math.floor(s) + 's';
  if (s < 3600 * 2) return Math.floor(s / 60) + 'm';
  if (s < 86400 * 2) return Math.floor(s / 3600) + 'h';
  return Math.floor(s / 86400) + 'd';
}
// when shows the growing age of a time, with text around it.
function when(time, before = '', after = '') {
  const e = h('time', { datetime: time, title: time, 'data-before': before, 'data-after': after });
  showAge(e);
  return e;
}
function showAge(e) { setText(e, (e.dataset.before || '') + age(e.dateTime) + (e.dataset.after || '')); }
function count(n, thing) { return n.toLocaleString('en') + ' ' + thing + (n === 1 ? '' : 's'); }

// --- the list of nodes ---

let sortBy = 'name', isDescending = false;
let byName = [], byNameOf = null; // all names in order, of that Map and size
let list = []; // the visible names, in order
let cursor = null; // the name of the row with the keyboard focus
let opened = null; // the name of the open node
const wantedStates = new Set();
let words = [], selector = '', matching = null;

function order() {
  const nodes = world.node;
  // Only an added or removed node changes the order of the names.
  if (byNameOf !== nodes || byName.length !== nodes.size || !byName.every((n) => nodes.has(n))) {
    byName = [...nodes.keys()].sort(names.compare);
    byNameOf = nodes;
  }
  list = byName.filter((name) => {
    const n = nodes.get(name);
    return (!wantedStates.size || wantedStates.has(n.state)) && words.every((w) => name.includes(w)) && (!matching || matching.has(name));
  });
  const by = columns.find((c) => c.id === sortBy).order;
  if (by) {
    const rank = new Map(list.map((name) => [name, by(nodes.get(name))]));
    list.sort((a, b) => rank.get(a) - rank.get(b)); // stable: by name among equals
  }
  if (isDescending) list.reverse();
  isOrderStale = false;
}

const pool = [];
function makeRow() {
  const row = h('div', { class: 'row', role: 'row' });
  row.cells = columns.map((c) => {
    const cell = h('div', { role: c.id === 'name' ? 'rowheader' : 'gridcell', class: (c.number ? 'number ' : '') + 'c-' + c.id });
    row.append(cell);
    return cell;
  });
  row.stateText = h('span', { class: 'state' });
  row.cells[1].append(row.stateText);
  row.addEventListener('click', () => { moveTo(row.name); open(row.name); });
  $('rows').append(row);
  return row;
}

function showRow(row, index) {
  const name = list[index], n = world.node.get(name);
  if (row.index !== index) {
    row.index = index;
    row.style.transform = `translateY(${index * rowHeight}px)`;
    row.setAttribute('aria-rowindex', index + 2);
    row.id = 'row-' + index;
  }
  row.name = name;
  row.hidden = false;
  row.classList.toggle('cursor', name === cursor);
  row.classList.toggle('open', name === opened);
  row.setAttribute('aria-selected', name === cursor);
  const [nameCell, , labels, pending, saved, last] = row.cells;
  setText(nameCell, name);
  setText(row.stateText, n.state);
  row.stateText.className = 'state ' + n.state;
  setText(labels, String(n.labels));
  labels.classList.toggle('zero', !n.labels);
  setText(pending, String(n.pending));
  pending.classList.toggle('zero', !n.pending);
  setText(saved, age(n.savedAt));
  setText(last, lastText(n));
}

function lastText(n) {
  if (n.problem) return n.problem;
  if (n.gatedSince) return 'gated for ' + age(n.gatedSince);
  if (n.deletionWaitsSince) return 'deletion waits, ' + age(n.deletionWaitsSince);
  if (n.awaySince) return 'away for ' + age(n.awaySince);
  if (n.restoredAt) return 'restored ' + age(n.restoredAt) + ' ago';
  return '';
}

function showRows() {
  const grid = $('grid');
  const height = Math.max(0, grid.clientHeight - $('head').offsetHeight);
  const first = Math.max(0, Math.floor(grid.scrollTop / rowHeight) - spareRows);
  const last = Math.min(list.length, Math.ceil((grid.scrollTop + height) / rowHeight) + spareRows);
  while (pool.length < last - first) pool.push(makeRow());
  const used = new Set();
  for (let i = first; i < last; i++) { // a row keeps its element while it is visible
    const row = pool[i % pool.length];
    used.add(row);
    showRow(row, i);
  }
  for (const row of pool) if (!used.has(row)) row.hidden = true;
  const current = list.indexOf(cursor);
  if (current >= first && current < last) grid.setAttribute('aria-activedescendant', 'row-' + current);
  else grid.removeAttribute('aria-activedescendant');
}

function showList() {
  if (isOrderStale) order();
  $('rows').style.height = list.length * rowHeight + 'px';
  $('grid').setAttribute('aria-rowcount', list.length + 1);
  showRows();
  const all = world.node.size;
  setText($('shown'), list.length === all ? count(all, 'node') : `${list.length.toLocaleString('en')} of ${count(all, 'node')}`);
  $('empty').hidden = list.length > 0;
  setText($('empty'), !isSynced() ? 'Reading the cluster …' : all ? 'No node matches.' : 'There are no nodes, and no labels are saved.');
}

function showStates() {
  const counts = Object.fromEntries(states.map((s) => [s, 0]));
  for (const n of world.node.values()) counts[n.state]++;
  for (const chip of $('states').children) {
    const n = counts[chip.dataset.state];
    setText(chip.querySelector('b'), n.toLocaleString('en'));
    chip.hidden = !n && !wantedStates.has(chip.dataset.state);
  }
}

function makeChip(name, wanted, then, ...children) {
  return h('button', {
    type: 'button', class: 'chip', 'aria-pressed': 'false', onclick: (e) => {
      wanted.has(name) ? wanted.delete(name) : wanted.add(name);
      e.currentTarget.setAttribute('aria-pressed', wanted.has(name));
      then();
    },
  }, ...children);
}

for (const state of states) {
  const chip = makeChip(state, wantedStates, () => { isOrderStale = true; dirty.add('node'); $('grid').scrollTop = 0; requestRender(); },
    h('span', { class: 'state ' + state }, state), h('b'));
  chip.dataset.state = state;
  $('states').append(chip);
}
for (const c of columns) {
  const cell = h('div', { role: 'columnheader', class: c.number ? 'number' : undefined },
    h('button', { type: 'button', tabindex: '-1', onclick: () => {
      isDescending = sortBy === c.id && !isDescending;
      sortBy = c.id;
      isOrderStale = true;
      dirty.add('node');
      showSort();
      requestRender();
    } }, c.title));
  $('head').append(cell);
}
$('grid').setAttribute('aria-colcount', columns.length);
function showSort() {
  columns.forEach((c, i) => {
    const cell = $('head').children[i];
    if (c.id === sortBy) cell.setAttribute('aria-sort', isDescending ? 'descending' : 'ascending');
    else cell.removeAttribute('aria-sort');
  });
}
showSort();

// --- search ---

$('search').addEventListener('input', () => {
  const terms = $('search').value.trim().split(/\s+/).filter(Boolean);
  words = terms.filter((t) => !t.includes('=')).map((t) => t.toLowerCase());
  const newSelector = terms.filter((t) => t.includes('=')).join(',');
  if (newSelector !== selector) {
    selector = newSelector;
    if (!selector) { matching = null; setText($('search-note'), ''); }
    else matchStale(150);
  }
  $('grid').scrollTop = 0;
  isOrderStale = true;
  dirty.add('node');
  requestRender();
});

// showMatching shows only nodes whose labels match, or none while that is unknown.
function showMatching(found) {
  matching = new Set(found.names);
  setText($('search-note'), found.failed ? 'the server does not answer the search by label' : found.problem ? 'no selector: ' + found.problem : '');
}
let matchTimer = null;
function matchStale(wait = 1_000) {
  if (matchTimer && wait === 1_000) return; // a request is due earlier
  clearTimeout(matchTimer);
  matchTimer = setTimeout(async () => {
    const asked = selector;
    matchTimer = null;
    if (!asked) return;
    try {
      const answer = await fetch('/api/matching?selector=' + encodeURIComponent(asked));
      const found = answer.ok ? await answer.json() : { names: [], failed: true };
      if (asked !== selector) return;
      showMatching(found);
    } catch { // the stream repeats the request when it reconnects
      if (asked === selector) showMatching({ names: [], failed: true });
    }
    isOrderStale = true;
    dirty.add('node');
    requestRender();
  }, wait);
}

// --- the queue, activity, replicas ---

// keyed renders items as children of an element, and reuses the child of each key.
function keyed(parent, items, keyOf, make, update) {
  const known = parent.known || (parent.known = new Map());
  const wanted = new Set();
  let next = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    wanted.add(key);
    let child = known.get(key);
    if (!child) {
      child = make(item);
      known.set(key, child);
    }
    if (update) update(child, item);
    while (next && next.classList.contains('done')) next = next.nextElementSibling;
    if (child === next) next = next.nextElementSibling;
    else parent.insertBefore(child, next);
  }
  for (const [key, child] of known) {
    if (wanted.has(key)) continue;
    known.delete(key);
    if (isReady && parent.dataset.fades && parent.childElementCount < shownTransactions) {
      child.classList.add('done');
      setTimeout(() => child.remove(), 700);
    } else child.remove();
  }
}

// nodeLink names a node, or a malformed ConfigMap, whose node may be unknown or missing.
function nodeLink(name, malformed) {
  if (malformed && !world.node.has(name)) return h('span', { class: 'unlinked', title: malformed }, malformed);
  return h('button', { type: 'button', class: 'link', title: malformed || name, onclick: () => { moveTo(name); open(name); } }, name);
}
// relink turns the name of a malformed ConfigMap into a link once its node exists.
function relink(item, name, malformed) {
  const text = item.querySelector('.unlinked');
  if (text && world.node.has(name)) text.replaceWith(nodeLink(name, malformed));
}

$('queue').dataset.fades = 'true';
function showQueue() {
  const all = [...world.transaction].sort((a, b) => at(a[1].created) - at(b[1].created) || names.compare(a[1].node, b[1].node) || a[1].version - b[1].version);
  setText($('queue-count'), all.length ? count(all.length, 'transaction') : isSynced() ? 'nothing is pending' : '');
  keyed($('queue'), all.slice(0, shownTransactions), ([key]) => key, ([key, t]) => h('li', { class: isReady ? 'new' : '' },
    h('span', { class: 'tag ' + (t.problem ? 'malformed' : t.type) }, t.problem ? 'malformed' : t.type), nodeLink(t.node, t.problem && key),
    h('span', { class: 'text' }, t.problem || `version ${t.version}, ${count(t.labels, 'label')}`), when(t.created)), (item, [key, t]) => relink(item, t.node, key));
  const more = all.length - shownTransactions;
  setText($('queue-more'), more > 0 ? `and ${count(more, 'more transaction')}` : '');
}

function showFlow() {
  const flow = world.meta.get('flow');
  if (!flow) return;
  const g = $('flow').querySelector('g'), step = 184 / flow.recorded.length, middle = 12;
  const most = Math.max(4, ...flow.recorded, ...flow.applied);
  const rect = (kind, i, n) => {
    const e = document.createElementNS('http://www.w3.org/2000/svg', 'rect');
    const height = n ? Math.max(1, n / most * (middle - 1)) : 0;
    for (const [k, v] of Object.entries({ class: kind, x: i * step, width: step - .8, height, y: kind === 'recorded' ? middle - height : middle + .5 })) e.setAttribute(k, v);
    return e;
  };
  const line = document.createElementNS('http://www.w3.org/2000/svg', 'line');
  for (const [k, v] of Object.entries({ x1: 0, x2: 184, y1: middle, y2: middle })) line.setAttribute(k, v);
  g.replaceChildren(line, ...flow.recorded.map((n, i) => rect('recorded', i, n)), ...flow.applied.map((n, i) => rect('applied', i, n)));
  const sum = (all) => all.reduce((a, b) => a + b, 0);
  setText($('flow-title'), `In the last two minutes ${count(sum(flow.recorded), 'transaction')} came (above) and ${count(sum(flow.applied), 'transaction')} went (below)`);
}

const wantedWhats = new Set();
for (const what of whats) $('whats').append(makeChip(what, wantedWhats, () => { dirty.add('happening'); requestRender(); }, what));
function showHappenings() {
  let all = [...world.happening].sort((a, b) => b[0] - a[0]);
  if (wantedWhats.size) all = all.filter(([, e]) => wantedWhats.has(e.what));
  keyed($('happenings'), all, ([key]) => key, ([, e]) => h('li', { class: isReady ? 'new' : '' },
    h('time', { datetime: e.at, title: e.at }, clock.format(new Date(e.at))), h('span', { class: 'tag ' + e.what }, e.what), nodeLink(e.node, e.object), h('span', { class: 'text', title: e.text }, e.text)), (item, [, e]) => relink(item, e.node, e.object));
}

// shares draws the shares of members: a bar, and a line for each member.
function shares(title, note, members) {
  const hasShares = members.some((m) => m.share > 0);
  const bar = h('div', { class: 'shares', 'aria-hidden': 'true' });
  members.forEach((m, i) => {
    const part = h('span', { class: 'm' + i % 8, title: m.name });
    part.style.width = m.share + '%';
    if (m.share > 0) bar.append(part);
  });
  return h('div', { class: 'service' },
    h('div', { class: 'service-head' }, h('b', {}, title), h('span', { class: 'dim' }, note)), hasShares ? bar : null,
    h('div', { role: 'list', 'aria-label': title }, ...members.map((m, i) => h('div', { class: 'member', role: 'listitem' },
      h('span', { class: 'swatch' + (m.share > 0 ? ' m' + i % 8 : ''), 'aria-hidden': 'true' }), h('span', { title: m.title || m.name }, m.name),
      h('span', { class: m.isBad ? 'bad' : 'dim' }, m.state), h('span', { class: 'number dim' }, m.amount || ''), h('span', { class: 'number' }, m.share > 0 ? m.share.toFixed(1) + '%' : '')))));
}

function showReplicas() {
  const services = new Map();
  for (const r of [...world.replica.values()].sort((a, b) => names.compare(a.name, b.name))) {
    if (!services.has(r.service)) services.set(r.service, []);
    services.get(r.service).push({
      name: r.name, share: r.sharePercent, isReady: r.ready,
      state: !r.alive ? 'not alive' : r.silence ? 'silent ' + r.silence : r.standby ? 'standby' : 'ready', isBad: !r.alive || !!r.silence || !!r.problem,
      amount: r.service === 'processor' ? count(r.nodes, 'node') : '', title: [r.name, r.version, r.problem].filter(Boolean).join(', '),
    });
  }
  const replicas = world.problem.get('replicas');
  const parts = [...services].sort().map(([service, members]) => shares(service + 's', `${members.filter((m) => m.isReady).length} of ${members.length} ready`, members));
  const none = replicas || parts.length || !isSynced() ? [] : [h('p', { class: 'dim' }, 'No replica has a place on a ring.')];
  $('replicas').replaceChildren(...(replicas ? [h('p', { class: 'warning' }, 'The replicas are not shown: ' + replicas.text)] : []), ...none, ...parts);
}

function showMeta() {
  const cluster = world.meta.get('cluster'), health = world.meta.get('health');
  setText($('cluster'), cluster ? cluster.name : '');
  document.title = cluster ? `nodekeeper · ${cluster.name}` : 'nodekeeper';
  if (health) {
    setText($('health'), health.unwell.length ? 'unwell: ' + health.unwell.join(', ') : 'well');
    $('health').title = $('health').textContent;
    $('health').className = 'pill ' + (health.unwell.length ? 'bad' : 'good');
    $('stuck').hidden = !health.stuck.length;
    setText($('stuck').querySelector('summary'), count(health.stuckTotal, 'thing') + ' stuck');
    $('stuck').querySelector('ul').replaceChildren(...health.stuck.map((s) => h('li', {}, h('b', {}, s.name), ': ' + s.reason + '. ', h('span', { class: 'dim' }, s.advice))),
      ...(health.stuckTotal > health.stuck.length ? [h('li', { class: 'dim' }, `and ${health.stuckTotal - health.stuck.length} more`)] : []));
  }
  showFlow();
}

// --- one node ---

let detailTimer = null, detailFetch = null, lastOpened = 0;
let waits = false; // whether the open node has pending transactions
function open(name) {
  const isPassing = Date.now() - lastOpened < 200; // a key is held down
  lastOpened = Date.now();
  opened = name;
  waits = false;
  history.replaceState(null, '', '#' + encodeURIComponent(name));
  setText($('detail-title'), name);
  $('detail-state').className = 'state';
  setText($('detail-state'), '');
  $('detail-body').replaceChildren(h('p', { class: 'dim' }, 'Reading …'));
  $('detail').hidden = false;
  document.querySelector('main').classList.add('opened');
  if (isPassing) {
    clearTimeout(detailTimer);
    detailTimer = setTimeout(readDetail, 200);
  } else readDetail();
  requestRender();
}
function close() {
  if (!opened) return;
  opened = null;
  waits = false;
  if (detailFetch) detailFetch.abort();
  history.replaceState(null, '', location.pathname);
  $('detail').hidden = true;
  document.querySelector('main').classList.remove('opened');
  $('grid').focus();
  requestRender();
}
function detailStale() { // several changes share one read
  if (!detailTimer) detailTimer = setTimeout(readDetail, 250);
}
async function readDetail() {
  clearTimeout(detailTimer);
  detailTimer = null;
  const name = opened;
  if (!name) return;
  if (detailFetch && detailFetch.of === name && !detailFetch.signal.aborted) { // otherwise a node that changes all the time would never show
    detailFetch.isStale = true;
    return;
  }
  if (detailFetch) detailFetch.abort();
  const reading = detailFetch = Object.assign(new AbortController(), { of: name, isStale: false });
  try {
    const answer = await fetch('/api/node?name=' + encodeURIComponent(name), { signal: reading.signal });
    if (answer.ok) showDetail(await answer.json());
    else $('detail-body').replaceChildren(h('p', { class: 'warning' }, await answer.text()));
  } catch (e) {
    if (e.name !== 'AbortError') $('detail-body').replaceChildren(h('p', { class: 'warning' }, 'The server does not answer.'));
  } finally {
    if (detailFetch === reading) {
      detailFetch = null;
      if (reading.isStale) detailStale();
    }
  }
}

function showDetail(n) {
  if (n.name !== opened) return;
  waits = n.pending.length > 0;
  setText($('detail-state'), n.state);
  $('detail-state').className = 'state ' + n.state;
  const facts = [];
  const fact = (name, ...value) => facts.push(h('dt', {}, name), h('dd', {}, ...value));
  if (n.node) fact('Node', 'uid ', h('code', {}, n.node.uid), ', resourceVersion ', h('code', {}, n.node.resourceVersion));
  if (n.node && n.node.marker) fact('Restored', n.node.restoredAt ? when(n.node.restoredAt, '', ' ago, ') : '', 'from version ', h('code', {}, n.node.marker));
  if (n.node && n.node.gatedSince) fact('Gated', when(n.node.gatedSince, 'for '));
  if (n.awaySince) fact('Away', when(n.awaySince, 'for '));
  if (n.record) fact('Record', 'version ', h('code', {}, n.record.version), n.record.savedAt ? when(n.record.savedAt, ', saved ', ' ago') : '');
  if (n.record) fact('From', n.record.source ? 'uid ' : 'no incarnation: set by hand', n.record.source ? h('code', {}, n.record.source) : '');
  const scrolled = $('detail-body').scrollTop;
  $('detail-body').replaceChildren(
    h('p', {}, n.summary), ...n.notes.map((t) => h('p', { class: 'note' }, t)), n.problem ? h('p', { class: 'warning' }, n.problem) : '',
    h('dl', { class: 'facts' }, ...facts), ...pendingPart(n), ...diffPart(n), ...withheldPart(n), ...storyPart(n));
  $('detail-body').scrollTop = scrolled;
}

function pendingPart(n) {
  if (!n.pending.length) return [];
  return [h('h3', {}, count(n.pending.length, 'pending transaction')), ...n.waits.map((t) => h('p', { class: 'warning' }, 'Waiting: ' + t)),
    h('ol', { class: 'list' }, ...n.pending.map((t) => h('li', {}, h('span', { class: 'tag ' + t.type }, t.type), h('span', {}, `version ${t.version}`),
      h('span', { class: 'text', title: t.reason }, `will ${t.will}: ${t.reason}`), when(t.created))))];
}

// diffPart compares the record with the node.
function diffPart(n) {
  if (!n.compared.length) return [];
  const isLive = !!n.node, isSaved = !!n.record;
  const value = (v, how) => v === undefined ? h('td', { class: how }, h('span', { class: 'none' }, 'none')) : h('td', { class: how }, v === '' ? '""' : v);
  const differing = n.compared.filter((l) => l.differs).length;
  const title = !isSaved ? 'Labels of the node; nothing is saved' : !isLive ? 'Saved labels' : differing ? `Saved labels against those of the node: ${count(differing, 'difference')}` : 'Saved labels, which the node has';
  return [h('h3', {}, title), h('table', { class: 'diff' },
    h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'Key'), isSaved ? h('th', { scope: 'col' }, 'Saved') : null, isLive ? h('th', { scope: 'col' }, 'On the node') : null)),
    h('tbody', {}, ...n.compared.map((l) => h('tr', { class: l.differs ? 'differs' : undefined },
      h('td', {}, l.key, l.kind === 'label' ? null : h('span', { class: 'kind' }, ' ' + l.kind), l.differs ? h('span', { class: 'why' }, l.why) : null),
      isSaved ? value(l.saved, l.differs && l.saved !== undefined ? 'minus' : '') : null, isLive ? value(l.live, l.differs && l.live !== undefined ? 'plus' : '') : null))))];
}

function withheldPart(n) {
  const all = (n.record && n.record.withheld) || [];
  return all.flatMap((w) => [h('h3', {}, `Withheld: ${Object.keys(w.labels).length}`), h('p', { class: 'note' }, w.reason),
    h('table', { class: 'diff' }, h('tbody', {}, ...Object.entries(w.labels).map(([k, v]) => h('tr', {}, h('td', {}, k.replace(/^(annotation|taint):/, '$1 ')), h('td', {}, v)))))]);
}

function storyPart(n) {
  if (!n.moments.length) return [];
  return [h('h3', {}, 'What happened'), h('ol', { class: 'story' }, ...[...n.moments].reverse().map((m) =>
    h('li', { class: m.warning ? 'bad' : undefined }, when(m.at, '', ' ago'), h('span', { class: 'dim' }, m.source + ': '), m.text)))];
}

// --- rendering: at most once per frame, and only changes ---

let isRequested = false;
function requestRender() {
  if (isRequested) return;
  isRequested = true;
  requestAnimationFrame(render);
}
function render() {
  isRequested = false;
  if (dirty.has('node')) { showList(); showStates(); } else showRows();
  if (dirty.has('transaction')) showQueue();
  if (dirty.has('happening')) showHappenings();
  if (dirty.has('replica') || dirty.has('problem')) showReplicas();
  if (dirty.has('problem')) $('problems').replaceChildren(...(world.problem.has('nodes') ? [h('p', {}, 'What is shown may be old or not all: ' + world.problem.get('nodes').text)] : []));
  if (dirty.has('meta')) { showMeta(); showList(); }
  dirty.clear();
}
$('grid').addEventListener('scroll', requestRender, { passive: true });
new ResizeObserver(requestRender).observe($('grid'));
narrow.addEventListener('change', () => {
  rowHeight = narrow.matches ? 52 : 28;
  for (const row of pool) row.index = undefined; // it moves
  dirty.add('node');
  requestRender();
});
setInterval(() => { // ages grow
  if (document.hidden) return;
  showRows();
  for (const t of document.querySelectorAll('#queue time, #detail time')) showAge(t);
}, 1_000);

// --- keyboard ---

function moveTo(name) {
  if (isOrderStale) showList(); // a key came before the next frame
  cursor = name;
  const i = list.indexOf(name);
  if (i >= 0) {
    const grid = $('grid'), top = i * rowHeight, height = grid.clientHeight - $('head').offsetHeight;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top + rowHeight > grid.scrollTop + height) grid.scrollTop = top + rowHeight - height;
  }
  showRows();
}
function move(by) {
  if (isOrderStale) showList();
  if (!list.length) return;
  const i = list.indexOf(cursor);
  const to = i < 0 ? (by > 0 ? 0 : list.length - 1) : Math.min(list.length - 1, Math.max(0, i + by));
  moveTo(list[to]);
  if (opened && opened !== cursor) open(cursor);
}
const page = () => Math.max(1, Math.floor($('grid').clientHeight / rowHeight) - 2);
const keys = {
  j: () => move(1), ArrowDown: () => move(1), k: () => move(-1), ArrowUp: () => move(-1), g: () => move(-Infinity), Home: () => move(-Infinity),
  G: () => move(Infinity), End: () => move(Infinity), PageDown: () => move(page()), PageUp: () => move(-page()), Enter: () => { if (cursor) open(cursor); },
  '/': () => { $('search').focus(); $('search').select(); }, '?': () => $('help').showModal(), Escape: close,
};
const inGrid = new Set(['ArrowDown', 'ArrowUp', 'Home', 'End', 'PageDown', 'PageUp', 'Enter']);
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || $('help').open) return;
  if (e.target === $('search')) {
    if (e.key === 'Escape') {
      $('search').value = '';
      $('search').dispatchEvent(new Event('input'));
    }
    if (e.key === 'Escape' || e.key === 'Enter' || e.key === 'ArrowDown') {
      $('grid').focus();
      if (isOrderStale) showList();
      if (e.key !== 'Escape') moveTo(list.includes(cursor) ? cursor : list[0] || null);
      e.preventDefault();
    }
    return;
  }
  // Other scrollable or clickable parts of the page keep their keys.
  if (inGrid.has(e.key) && e.target !== $('grid') && e.target !== document.body) return;
  const act = keys[e.key];
  if (!act) return;
  e.preventDefault();
  act();
});
$('close').addEventListener('click', close);
$('help-button').addEventListener('click', () => $('help').showModal());

connect();
if (location.hash) {
  try {
    open(decodeURIComponent(location.hash.slice(1)));
  } catch {
    history.replaceState(null, '', location.pathname); // the user has edited it
  }
}
