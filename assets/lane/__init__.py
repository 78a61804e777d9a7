"""The lane: on the box, between gate and engine, where the one GPU is: who is served when, and who is told what.

Written for Python 3.9. Decisions are pure, time is passed in:

  config      what one lane is given, each limit with its reason
  asked       a request as the engine may see it: allowed paths and fields, the others pinned
  estimates   seconds per token, per prompt, and lengths, learned here
  order       who is next; what stands before a newcomer
  line        the line itself: arrivals, turns, slices, deadlines, drain
  seam        slices of one answer joined to one

and what acts on them:

  engines     Ollama and llama.cpp's server behind one adapter
  buffer      between an engine at full speed and a slow reader
  turn        one request from its arrival to its last byte
  delivery    from its buffer to its caller; what a caller is told
  service     the routes, the way out
  admin       loopback administration, and what is counted as Prometheus text
  notify      systemd's readiness and watchdog
"""
