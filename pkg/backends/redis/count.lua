-- Counts hits in fixed windows: cells that are charged whatever they hold.
--
-- KEYS[i]      a counter, a plain integer that GET reads
-- ARGV[2i-1]   what to add, 0 to look only; ARGV[2i] its lifetime in ms
-- Returns the counts, in the order of KEYS.
--
-- This is apply.lua's step for the one case that nearly all traffic is.
local MAX = 4503599627370496 -- backends.MaxValue, 2^52
local counts = {}
for i, key in ipairs(KEYS) do
  local by = ARGV[2 * i - 1]
  local n
  if by == '0' then
    n = tonumber(redis.call('GET', key) or 0)
  else
    n = redis.call('INCRBY', key, by)
    if n == tonumber(by) then -- it is new, or was given back to nothing
      redis.call('PEXPIRE', key, ARGV[2 * i])
    elseif n > MAX then
      n = MAX
      redis.call('SET', key, '4503599627370496', 'KEEPTTL')
    end
  end
  counts[i] = n
end
return counts
