-- Makes a write, so that its connection can wait until the server's file is on the disk up to here (WAITAOF).

call('HSET', P .. 'facts', 'forced_ms', NOW)
return {NOW}
