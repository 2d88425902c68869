"use strict";
// When the server says that something has changed, the page is fetched again and its contents are put in place of the
// old ones. What a person is doing stays: where they scrolled to, what they unfolded, what they are typing.
(() => {
  const live = document.querySelector(".site .updates");
  const say = (text) => { if (live && live.textContent !== text) live.textContent = text; };
  const key = (part) => part.id || part.querySelector("summary")?.textContent || "";
  const isBusy = () => document.activeElement?.closest("form") || document.querySelector(".chosen");
  let running = false, again = false;
  const renew = async () => {
    if (running || isBusy()) { again = true; return; }
    running = true; again = false;
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" } });
      if (!answer.ok) throw new Error(answer.status);
      const next = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("#main");
      const now = document.querySelector("#main");
      if (next.innerHTML !== now.dataset.source) {
        const open = new Set([...now.querySelectorAll("details[open]")].map(key));
        const source = next.innerHTML;
        for (const part of next.querySelectorAll("details")) if (open.has(key(part))) part.open = true;
        now.replaceChildren(...next.childNodes);
        now.dataset.source = source;
        dispatchEvent(new Event("imas:contents"));
      }
      say("updated " + new Date().toLocaleTimeString());
    } catch { say("not updated: no answer"); }
    running = false;
  };
  let events, retry;
  const connect = () => {
    clearTimeout(retry);
    events = new EventSource("/events");
    events.addEventListener("changed", (event) => {
      const first = !live.dataset.seen;
      live.dataset.seen = event.lastEventId;
      if (first && live.dataset.seen) say("live"); else renew();
    });
    events.addEventListener("error", () => {
      say("connecting again");
      // After an answer such as "too many" the browser does not do it by itself.
      if (events.readyState === EventSource.CLOSED) retry = setTimeout(connect, 10000);
    });
  };
  connect();
  // A page that the browser keeps for its "back" would hold one of six connections; the seventh page would wait.
  addEventListener("pagehide", () => { clearTimeout(retry); events.close(); });
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  // Processes change all the time.
  if (location.pathname === "/machine") setInterval(() => { if (!document.hidden) renew(); }, 5000);
  // A change that came while a person was busy, or while the page was being fetched.
  setInterval(() => { if (again) renew(); }, 1000);
})();
