"""The gateway: what a caller's request meets while the GPU is gone, busy or dying.

Decisions (plain data, time passed in)       Input and output
  config      the numbers                      service     routes, and the way out
  admission   what a request may ask           serving     one request: step after step until it is answered
  callers     who asks, and how much           reply       what the caller sees
  fallback    who is asked next                targets     the GPU and the cloud model
  breaker     whether the GPU is asked         store       keys, caps and ledger in DynamoDB
  restraint   whether the cloud may be         memory      the same in this process alone
  ledger      what is remembered               record      what is known of one request
  voice       what the Modelfile says
  items       what the table holds
                                               authorize   whose call to the cloud it is
                                               metrics     what is counted, and the log's line
"""
