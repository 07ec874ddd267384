// Keeps a page as the ledger is: the server says that something changed, the page is fetched, changed parts are replaced.
"use strict";
(() => {
  const PAUSE = 2000, AGAIN = 300;
  const status = document.getElementById("connection");
  const parts = (root) => [...root.querySelectorAll("[data-live-part]")];
  const served = new Map(parts(document).map((part) => [part.id, part.outerHTML]));
  let events = null, wanted = "", busy = false, last = 0;

  function say(text, lost = false) {
    if (status.textContent !== text) status.textContent = text;
    status.classList.toggle("lost", lost);
  }

  // What people have done to a part: opened details, chosen boxes, scrolled, focused.
  function remember(part) {
    const open = new Map([...part.querySelectorAll("details[id]")].map((one) => [one.id, one.open]));
    const chosen = new Set([...part.querySelectorAll("input:checked")].map((one) => one.value));
    const scrolled = [...part.querySelectorAll(".box, pre")].map((one) =>
      [one.scrollLeft, one.scrollTop, one.scrollTop + one.clientHeight >= one.scrollHeight - 2]);
    const focusable = "a, button, input, summary, [tabindex]";
    const focused = [...part.querySelectorAll(focusable)].indexOf(document.activeElement);
    return (fresh) => {
      for (const one of fresh.querySelectorAll("details[id]")) if (open.has(one.id)) one.open = open.get(one.id);
      for (const one of fresh.querySelectorAll("input[type=checkbox]")) one.checked = chosen.has(one.value);
      fresh.querySelectorAll(".box, pre").forEach((one, place) => {
        if (!scrolled[place]) return;
        one.scrollLeft = scrolled[place][0];
        one.scrollTop = one.tagName === "PRE" && scrolled[place][2] ? one.scrollHeight : scrolled[place][1];
      });
      if (focused >= 0) fresh.querySelectorAll(focusable)[focused]?.focus({ preventScroll: true });
    };
  }

  // A part that was not ready says so, and in how many milliseconds it may be.
  function wait() {
    const part = document.querySelector("[data-waiting]");
    if (part) setTimeout(refresh, Number(part.dataset.waiting) || AGAIN);
  }

  async function refresh() {
    if (busy) return;
    busy = true;
    try {
      await new Promise((done) => setTimeout(done, Math.max(0, last + PAUSE - Date.now())));
      const seen = wanted;
      last = Date.now();
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (answer.status === 403) return refused();
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (parts(document).map((one) => one.id).join() !== parts(fresh).map((one) => one.id).join()) return location.reload();
      for (const part of parts(fresh)) {
        if (served.get(part.id) === part.outerHTML) continue;
        served.set(part.id, part.outerHTML);
        const old = document.getElementById(part.id), restore = remember(old), next = document.importNode(part, true);
        old.replaceWith(next);
        restore(next);
      }
      document.title = fresh.title;
      document.body.dataset.stamp = fresh.body.dataset.stamp || seen;
      document.dispatchEvent(new Event("ledgerchange"));
      wait();
    } catch (error) {
      say("The server does not answer. Waiting for it.", true);
    } finally {
      busy = false;
    }
    if (wanted && wanted !== document.body.dataset.stamp && Date.now() - last < PAUSE) setTimeout(refresh, PAUSE);
  }

  function refused() {
    events?.close();
    events = null;
    say("The server was started again: open the link that lrurun ui printed.", true);
  }

  function listen() {
    if (events || document.hidden) return;
    events = new EventSource(document.body.dataset.live);
    events.onmessage = (event) => {
      say("Live");
      wanted = event.data;
      if (wanted !== document.body.dataset.stamp) refresh();
    };
    events.onerror = () => {
      say("The server does not answer. Waiting for it.", true);
      // Refused, not only away: another server has another token.
      if (events?.readyState === EventSource.CLOSED) {
        events = null;
        fetch(document.body.dataset.live.split("?")[0].replace("live", "static/ui.css")).then(
          (answer) => (answer.status === 403 ? refused() : setTimeout(listen, PAUSE)), () => setTimeout(listen, PAUSE));
      }
    };
  }

  // Browsers keep six connections to a server: pages that nobody looks at have none.
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) return listen();
    events?.close();
    events = null;
    say("Paused");
  });
  window.addEventListener("pagehide", () => { events?.close(); events = null; });
  window.addEventListener("pageshow", listen);
  for (const log of document.querySelectorAll("#log pre")) log.scrollTop = log.scrollHeight;
  wait();
})();
