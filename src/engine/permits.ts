/** The concurrency of a run tree (RP-25): tools and agents take a permit, first come first served. */
interface Waiter<T> {
  readonly who: T | undefined;
  readonly wanted: () => boolean;
  readonly answer: (granted: boolean) => void;
}

/** `T`: what a permit is taken for. */
export class Permits<T = unknown> {
  #free: number;
  #waiting: Waiter<T>[] = [];
  #head = 0;

  constructor(limit: number) {
    this.#free = limit;
  }

  /** Undefined when a permit was free; else resolves with true when one is, with false when it is not wanted any more. */
  acquire(wanted: () => boolean, who?: T): Promise<boolean> | undefined {
    if (this.#free > 0 && this.#head === this.#waiting.length) {
      this.#free--;
      return undefined;
    }
    return new Promise((answer) => this.#waiting.push({ who, wanted, answer }));
  }

  /** What waits for a permit now, first come first. */
  get waiting(): readonly T[] {
    return this.#waiting.slice(this.#head).flatMap(({ who, wanted }) => (who !== undefined && wanted() ? [who] : []));
  }

  release(): void {
    this.#free++;
    this.#serve();
  }

  /** The limit was raised. */
  grow(by: number): void {
    this.#free += by;
    this.#serve();
  }

  /** Lets go of those who were told to stop while they waited: who holds a permit may take long to end. */
  sweep(): void {
    const waiting = this.#waiting.slice(this.#head);
    this.#waiting = waiting.filter((waiter) => waiter.wanted());
    this.#head = 0;
    for (const waiter of waiting) if (!waiter.wanted()) waiter.answer(false);
  }

  #serve(): void {
    while (this.#free > 0 && this.#head < this.#waiting.length) {
      const waiter = this.#waiting[this.#head++] as Waiter<T>;
      if (this.#head > 1024 && this.#head * 2 > this.#waiting.length) {
        this.#waiting = this.#waiting.slice(this.#head);
        this.#head = 0;
      }
      const wanted = waiter.wanted();
      if (wanted) this.#free--;
      waiter.answer(wanted);
    }
  }
}
