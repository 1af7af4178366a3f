-- Applies a batch of operations: backends.Cell.Step and backends.Log.Step.
--
-- KEYS     for each operation its key, and its Prev if it has one
-- ARGV[1]  the operations, packed (see pack in script.go)
-- ARGV[2]  '1' if all are charged or none
-- Returns  refused (0 or 1), then for each operation: admitted, value whole,
--          value frac, prev, until, retry at (-1 for never)
--
-- Cells are changed in `cells` and `lists` first and written at the end, so
-- that operations see each other and a refused batch leaves nothing behind.
--
-- A counter is "count", or "count:until" where the window starts at a hit; a
-- meter is "whole" or "whole:frac"; a list has elements "at:cost:total", total
-- being the sum of the costs up to it, so that a sum is one subtraction. Ends
-- are judged by the caller's clock (now), never by whether Redis has expired
-- the key. All numbers stay below 2^53, where doubles are exact.
local COUNTER, METER = 0, 1 -- else a list
local FIXED, EVERY_HIT = 0, 2
local MAX = 4503599627370496 -- backends.MaxValue, 2^52
local NEVER = -1
local GRACE = 1000 -- ms; as in script.go
local FORMAT, SIZE = '<BBBBBdddddddddddd', 5 + 12 * 8

local call, floor, fmod, find, sub = redis.call, math.floor, math.fmod, string.find, string.sub

local function int(x) return string.format('%.0f', x) end

-- lifetime is how long a key lives, in ms, whose cell ends in us µs.
local function lifetime(us) return int(math.ceil(us / 1000) + GRACE) end

-- share is ceil(count * num / den): long division in digits of 16 bits, so
-- that with den <= 2^35 nothing exceeds 2^52.
local function share(count, num, den)
  local digits = {}
  repeat
    local d = fmod(count, 65536)
    digits[#digits + 1] = d
    count = (count - d) / 65536
  until count == 0
  local q, r = 0, 0
  for i = #digits, 1, -1 do
    local x = r * 65536 + digits[i] * num
    r = fmod(x, den)
    q = q * 65536 + (x - r) / den
  end
  if r > 0 then q = q + 1 end
  return q
end

local raw = {} -- what GET returned, for a second look
local cells, lists = {}, {}

-- cell is the staged cell of key: its first number (nil when absent) and what
-- follows the colon.
local function cell(key)
  local c = cells[key]
  if c then return c end
  local s = raw[key]
  if s == nil then
    s = call('GET', key)
    raw[key] = s
  end
  c = { value = false, rest = false, dirty = false, ttl = false }
  if s then
    c.value = tonumber(s)
    if not c.value then
      local colon = find(s, ':', 1, true)
      c.value, c.rest = tonumber(sub(s, 1, colon - 1)), tonumber(sub(s, colon + 1))
    end
  end
  cells[key] = c
  return c
end

local function counter(key, prev, span, refund, now, by, max, times, num, den, till, ttl)
  local before = 0
  if prev then
    before = cell(prev).value or 0
    if not refund then max = max - share(before, num, den) end
  end
  local c = cell(key)
  local present = c.value and (span == FIXED or now < (c.rest or 0))
  local v, ends = 0, till
  if present then
    v = c.value
    if span ~= FIXED then ends = c.rest end
  end
  local admitted = 0
  if refund then
    admitted = times
    v = v - by * times
    if v < 0 then v = 0 end
  else
    while admitted < times and v + by <= max do
      v = v + by
      admitted = admitted + 1
    end
    if v > MAX then v = MAX end
  end
  if admitted > 0 and by ~= 0 and (present or not refund) then
    if not present or span == EVERY_HIT and not refund then
      ends = till
      c.ttl = int(ttl)
    end
    c.value, c.dirty = v, true
    if span ~= FIXED then c.rest = ends end
  end
  return admitted, v, 0, before, ends, 0
end

local function meter(key, refund, now, by, byf, den, max, maxf, times)
  local c = cell(key)
  local v, f = c.value, c.rest or 0
  if not v or v < now then
    v, f = now, 0
  elseif f >= den then -- left by a limit with another denominator
    f = den - 1
  end
  local admitted = 0
  if refund then
    admitted = times
    for _ = 1, times do
      v, f = v - by, f - byf
      if f < 0 then v, f = v - 1, f + den end
    end
    if v < now then v, f = now, 0 end
  else
    while admitted < times do
      local w, g = v + by, f + byf
      if g >= den then w, g = w + 1, g - den end
      if max < w or max == w and maxf < g then break end
      v, f = w, g
      admitted = admitted + 1
    end
    if v > 2 * MAX then v, f = 2 * MAX, 0 end -- the year 2255
  end
  local ends = v
  if f > 0 then ends = v + 1 end
  if admitted > 0 and (by ~= 0 or byf ~= 0) then
    c.value, c.rest, c.dirty = false, false, true
    if ends > now then
      c.value, c.ttl = v, lifetime(ends - now)
      if f > 0 then c.rest = f end
    end
  end
  return admitted, v, f, 0, ends, 0
end

-- listSteps makes the functions for lists, which most batches do without.
local function listSteps()
  local function element(s)
    local a = find(s, ':', 1, true)
    local b = find(s, ':', a + 1, true)
    return { at = tonumber(sub(s, 1, a - 1)), cost = tonumber(sub(s, a + 1, b - 1)), total = tonumber(sub(s, b + 1)) }
  end

  -- list is the staged log of key: stored elements, of which the newest `cut`
  -- are taken off, then `added`. `base` is what left at its head.
  local function list(key, now, window)
    local l = lists[key]
    if l then return l end
    l = { cut = 0, added = {}, base = 0 }
    local s = call('LINDEX', key, 0)
    while s do
      local head = element(s)
      if head.at > now - window then
        l.base = head.total - head.cost
        break
      end
      call('LPOP', key)
      s = call('LINDEX', key, 0)
    end
    l.length = s and call('LLEN', key) or 0
    lists[key] = l
    return l
  end

  -- newest is the last element of the staged log, or nil.
  local function newest(l, key)
    if #l.added > 0 then return l.added[#l.added] end
    if l.cut >= l.length then return nil end
    if not l.tail then l.tail = element(call('LINDEX', key, -1 - l.cut)) end
    return l.tail
  end

  local function used(l, key)
    local e = newest(l, key)
    return e and e.total - l.base or 0
  end

  -- giveBack takes cost off the newest elements.
  local function giveBack(l, key, cost)
    local e = newest(l, key)
    while e and cost > 0 do
      if #l.added > 0 then
        l.added[#l.added] = nil
      else
        l.cut, l.tail = l.cut + 1, nil
      end
      if e.cost > cost then
        l.added[#l.added + 1] = { at = e.at, cost = e.cost - cost, total = e.total - cost }
        return
      end
      cost = cost - e.cost
      e = newest(l, key)
    end
  end

  -- retryAt is when enough of the oldest costs have left for one more `by`.
  local function retryAt(l, key, by, max, window)
    if by > max then return NEVER end
    local gone = used(l, key) + by - max + l.base -- the total that has to leave
    local stored = l.length - l.cut
    for first = 0, stored - 1, 64 do
      for _, s in ipairs(call('LRANGE', key, first, math.min(first + 63, stored - 1))) do
        local e = element(s)
        if e.total >= gone then return e.at + window end
      end
    end
    for _, e in ipairs(l.added) do
      if e.total >= gone then return e.at + window end
    end
    return NEVER
  end

  local function step(key, refund, now, by, max, times, window)
    local l = list(key, now, window)
    local admitted
    if refund then
      admitted = times
      if by > 0 then
        giveBack(l, key, by * times)
        l.dirty = true
      end
    else
      local sum = used(l, key)
      local room = max - sum
      if room < 0 then
        admitted = 0
      elseif by == 0 then
        admitted = times
      else
        admitted = math.min(times, floor(room / by))
      end
      local cost = by * admitted
      if cost > 0 then
        local at, e = now, newest(l, key)
        if e and e.at > at then at = e.at end -- another process' clock is ahead
        l.added[#l.added + 1] = { at = at, cost = cost, total = l.base + sum + cost }
        l.dirty = true
      end
    end
    local e = newest(l, key)
    local ends, retry = now, now
    if e then
      ends = e.at + window
      l.ttl = lifetime(ends - now)
    end
    if admitted < times then retry = retryAt(l, key, by, max, window) end
    return admitted, used(l, key), 0, 0, ends, retry
  end

  local function flush()
    for key, l in pairs(lists) do
      if l.dirty then
        if l.cut >= l.length then
          call('DEL', key)
        elseif l.cut > 0 then
          call('LTRIM', key, 0, -1 - l.cut)
        end
        for _, e in ipairs(l.added) do
          call('RPUSH', key, int(e.at) .. ':' .. int(e.cost) .. ':' .. int(e.total))
        end
        if newest(l, key) then call('PEXPIRE', key, l.ttl) end
      end
    end
  end

  return step, flush
end

local stepList, flushLists

local function write()
  for key, c in pairs(cells) do
    if c.dirty then
      if not c.value then
        call('DEL', key)
      else
        local s = int(c.value)
        if c.rest then s = s .. ':' .. int(c.rest) end
        if c.ttl then
          call('SET', key, s, 'PX', c.ttl)
        else
          call('SET', key, s, 'KEEPTTL')
        end
      end
    end
  end
  if flushLists then flushLists() end
end

local out = { 0 }
local refused = false

-- pass steps through all operations; a second look charges nothing and keeps
-- what the first found to fit.
local function pass(look)
  local k, r = 0, 2
  for at = 1, #ARGV[1], SIZE do
    local kind, span, soft, refund, hasPrev, now, by, byf, den, max, maxf, times, num, wden, till, ttl, window =
      struct.unpack(FORMAT, ARGV[1], at)
    refund = refund == 1
    if look then
      by, byf, max, times, refund = 0, 0, math.huge, 1, false
    end
    k = k + 1
    local key, prev = KEYS[k], nil
    if hasPrev == 1 then
      k = k + 1
      prev = KEYS[k]
    end
    local admitted, whole, frac, before, ends, retry
    if kind == COUNTER then
      admitted, whole, frac, before, ends, retry = counter(key, prev, span, refund, now, by, max, times, num, wden, till, ttl)
    elseif kind == METER then
      admitted, whole, frac, before, ends, retry = meter(key, refund, now, by, byf, den, max, maxf, times)
    else
      if not stepList then stepList, flushLists = listSteps() end
      admitted, whole, frac, before, ends, retry = stepList(key, refund, now, by, max, times, window)
    end
    if look then
      admitted, retry = out[r], out[r + 5]
    elseif soft == 0 and admitted < times then
      refused = true
    end
    out[r], out[r + 1], out[r + 2], out[r + 3], out[r + 4], out[r + 5] = admitted, whole, frac, before, ends, retry
    r = r + 6
  end
end

pass(false)
if refused and ARGV[2] == '1' then
  out[1], cells, lists = 1, {}, {}
  pass(true)
else
  write()
end
return out
