/** The concurrency of a run tree (RP-25): tools and agents take a permit, first come first served. */
interface Waiter {
  readonly wanted: () => boolean;
  readonly grant: () => void;
}

export class Permits {
  #free: number;
  #waiting: Waiter[] = [];
  #head = 0;

  constructor(limit: number) {
    this.#free = limit;
  }

  /** Undefined when a permit was free; else resolves when one is. A waiter that is no longer wanted gets none. */
  acquire(wanted: () => boolean): Promise<void> | undefined {
    if (this.#free > 0 && this.#head === this.#waiting.length) {
      this.#free--;
      return undefined;
    }
    return new Promise((grant) => this.#waiting.push({ wanted, grant }));
  }

  /** For a dispatch that may not wait because its grant is consumed now. */
  take(): void {
    this.#free--;
  }

  release(): void {
    this.#free++;
    while (this.#free > 0 && this.#head < this.#waiting.length) {
      const waiter = this.#waiting[this.#head++] as Waiter;
      if (this.#head > 1024 && this.#head * 2 > this.#waiting.length) {
        this.#waiting = this.#waiting.slice(this.#head);
        this.#head = 0;
      }
      if (!waiter.wanted()) continue;
      this.#free--;
      waiter.grant();
    }
  }
}
