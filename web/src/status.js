// status.js: asks the server every two seconds how it is: health, the models' names, the numbers of the cluster.
import { getHealth, getMetrics, getModels } from "./api.js";

const PERIOD_MS = 2000;
const DEADLINE_MS = 10000;

function one(metrics, name) {
  return metrics.get(`lockstep_${name}`)?.[0]?.value ?? null;
}

function ofRanks(metrics, name) {
  return new Map((metrics?.get(`lockstep_rank_${name}`) ?? []).map((s) => [s.labels.rank, s.value]));
}

/* The share of the time between two samples of a counter of seconds; null if it is not known or the counter began again. */
function share(before, now, seconds) {
  return before === undefined || now < before || seconds <= 0 ? null : Math.min(1, (now - before) / seconds);
}

/* What the panel shows, from metrics and from those some seconds before (null at first). */
export function clusterOf(metrics, before, seconds) {
  const kernels = ofRanks(metrics, "compute_seconds_total");
  const fabric = ofRanks(metrics, "fabric_seconds_total");
  const kernelsBefore = ofRanks(before, "compute_seconds_total");
  const fabricBefore = ofRanks(before, "fabric_seconds_total");
  return {
    n_ranks: one(metrics, "ranks"),
    running: one(metrics, "requests_running"),
    queued: one(metrics, "requests_queued"),
    pages: one(metrics, "kv_pages"),
    pagesUsed: one(metrics, "kv_pages_used"),
    recoveries: one(metrics, "recoveries_total"),
    ranks: [...ofRanks(metrics, "resident_bytes")].map(([rank, bytes]) => ({
      rank,
      bytes,
      kernels: share(kernelsBefore.get(rank), kernels.get(rank), seconds),
      fabric: share(fabricBefore.get(rank), fabric.get(rank), seconds),
    })),
  };
}

export class Watch {
  health = { state: "asking", why: "" };
  models = []; // their names, once they are known
  model; // the one that is talked to; "": the server's choice
  cluster = null; // null where the server does not tell
  #denied = false; // nothing that needs a key is asked again without another one
  #last = null;
  #timer = null;

  /* key() gives the API key or ""; wanted() the model to talk to if there are several; denied() is told that a key is needed;
   * changed() follows every poll. */
  constructor({ key, wanted, changed, denied }) {
    Object.assign(this, { key, wanted, changed, denied });
    this.model = wanted() ?? "";
  }

  /* Begins, or goes on with a new key. */
  start() {
    clearTimeout(this.#timer);
    this.#denied = false;
    this.#poll();
  }

  async #poll() {
    if (!document.hidden) await this.#ask();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#poll(), PERIOD_MS);
  }

  async #ask() {
    this.health = await getHealth(this.model, AbortSignal.timeout(DEADLINE_MS));
    if (this.health.state !== "unreachable" && this.health.state !== "ending" && !this.#denied) await this.#askMore();
    if (!this.#isUp()) this.cluster = this.#last = null;
    this.changed(this.health.state);
  }

  #isUp() {
    return this.health.state === "ok" || this.health.state === "recovering";
  }

  /* A model that is down is not exchanged for another, which would answer in its place: who asks may choose that. The
   * server knows of it if it says how it is, even where it lists only those that are up. */
  #choose(listed) {
    const { model } = this;
    const isDown = this.health.state === "loading" || this.health.state === "unhealthy";
    this.models = isDown && model !== "" && !listed.includes(model) ? [...listed, model] : listed;
    this.model = [this.wanted(), model].find((m) => this.models.includes(m)) ?? this.models[0] ?? "";
    return this.model !== model;
  }

  async #askMore() {
    try {
      if (this.#choose(await getModels(this.key(), AbortSignal.timeout(DEADLINE_MS)))) {
        this.#last = null;
        this.health = await getHealth(this.model, AbortSignal.timeout(DEADLINE_MS));
      }
      if (!this.#isUp()) return;
      const metrics = await getMetrics(this.model, this.key(), AbortSignal.timeout(DEADLINE_MS));
      const at = performance.now();
      this.cluster = clusterOf(metrics, this.#last?.metrics ?? null, (at - (this.#last?.at ?? at)) / 1000);
      this.#last = { metrics, at };
    } catch (e) {
      this.cluster = this.#last = null;
      if (e.status !== 401) return; // the next poll may do better
      this.#denied = true;
      this.denied();
    }
  }
}
