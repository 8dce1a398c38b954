/** `fetch` for MCP servers: no redirects, which would carry headers elsewhere, and no answer beyond a size. */

export type Fetch = (url: string | URL, init?: RequestInit) => Promise<Response>;

/** @param maxBytes of one whole answer; a stream of events is one answer */
export function boundedFetch(maxBytes: number): Fetch {
  return async (url, init) => {
    const response = await fetch(url, { ...init, redirect: "error" });
    if (response.body === null) return response;
    let left = maxBytes;
    const bounded = response.body.pipeThrough(
      new TransformStream<Uint8Array, Uint8Array>({
        transform(chunk, controller) {
          left -= chunk.byteLength;
          if (left < 0) controller.error(new Error(`the answer has more than ${maxBytes} bytes`));
          else controller.enqueue(chunk);
        },
      }),
    );
    return new Response(bounded, {
      status: response.status,
      statusText: response.statusText,
      headers: response.headers,
    });
  };
}
