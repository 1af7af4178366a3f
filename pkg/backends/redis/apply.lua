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
local COUNTER, METER, LIST = 0, 1, 2
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
  c = {}
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

local function counter(o, key, prev)
  local before = 0
  if prev then before = cell(prev).value or 0 end
  local c = cell(key)
  local present = c.value and (o.span == FIXED or o.now < (c.rest or 0))
  local v, ends = 0, o.till
  if present then
    v = c.value
    if o.span ~= FIXED then ends = c.rest end
  end
  local admitted = 0
  if o.refund then
    admitted = o.times
    v = v - o.by * o.times
    if v < 0 then v = 0 end
  else
    local ceiling = o.max
    if prev then ceiling = ceiling - share(before, o.num, o.wden) end
    while admitted < o.times and v + o.by <= ceiling do
      v = v + o.by
      admitted = admitted + 1
    end
    if v > MAX then v = MAX end
  end
  if admitted > 0 and o.by ~= 0 and (present or not o.refund) then
    if not present or o.span == EVERY_HIT and not o.refund then
      ends = o.till
      c.ttl = int(o.ttl)
    end
    c.value, c.dirty = v, true
    if o.span ~= FIXED then c.rest = ends end
  end
  return admitted, v, 0, before, ends, 0
end

local function meter(o, key)
  local c = cell(key)
  local v, f = c.value, c.rest or 0
  if not v or v < o.now then
    v, f = o.now, 0
  elseif f >= o.den then -- left by a limit with another denominator
    f = o.den - 1
  end
  local admitted = 0
  if o.refund then
    admitted = o.times
    for _ = 1, o.times do
      v, f = v - o.by, f - o.byf
      if f < 0 then v, f = v - 1, f + o.den end
    end
    if v < o.now then v, f = o.now, 0 end
  else
    while admitted < o.times do
      local w, g = v + o.by, f + o.byf
      if g >= o.den then w, g = w + 1, g - o.den end
      if o.max < w or o.max == w and o.maxf < g then break end
      v, f = w, g
      admitted = admitted + 1
    end
    if v > 2 * MAX then v, f = 2 * MAX, 0 end -- the year 2255
  end
  local ends = v
  if f > 0 then ends = v + 1 end
  if admitted > 0 and (o.by ~= 0 or o.byf ~= 0) then
    c.value, c.rest, c.dirty = nil, nil, true
    if ends > o.now then
      c.value, c.ttl = v, lifetime(ends - o.now)
      if f > 0 then c.rest = f end
    end
  end
  return admitted, v, f, 0, ends, 0
end

local function element(s)
  local a = find(s, ':', 1, true)
  local b = find(s, ':', a + 1, true)
  return { at = tonumber(sub(s, 1, a - 1)), cost = tonumber(sub(s, a + 1, b - 1)), total = tonumber(sub(s, b + 1)) }
end

-- list is the staged log of key: stored elements, of which the newest `cut`
-- are taken off, then `added`. `base` is what left at its head.
local function list(o, key)
  local l = lists[key]
  if l then return l end
  l = { cut = 0, added = {}, base = 0 }
  local s = call('LINDEX', key, 0)
  while s do
    local head = element(s)
    if head.at > o.now - o.window then
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

-- retryAt is when enough of the oldest costs have left for one more o.by.
local function retryAt(o, l, key)
  if o.by > o.max then return NEVER end
  local gone = used(l, key) + o.by - o.max + l.base -- the total that has to leave
  local stored = l.length - l.cut
  for first = 0, stored - 1, 64 do
    for _, s in ipairs(call('LRANGE', key, first, math.min(first + 63, stored - 1))) do
      local e = element(s)
      if e.total >= gone then return e.at + o.window end
    end
  end
  for _, e in ipairs(l.added) do
    if e.total >= gone then return e.at + o.window end
  end
  return NEVER
end

local function log(o, key)
  local l = list(o, key)
  local admitted
  if o.refund then
    admitted = o.times
    if o.by > 0 then
      giveBack(l, key, o.by * o.times)
      l.dirty = true
    end
  else
    local sum = used(l, key)
    local room = o.max - sum
    if room < 0 then
      admitted = 0
    elseif o.by == 0 then
      admitted = o.times
    else
      admitted = math.min(o.times, floor(room / o.by))
    end
    local cost = o.by * admitted
    if cost > 0 then
      local at, e = o.now, newest(l, key)
      if e and e.at > at then at = e.at end -- another process' clock is ahead
      l.added[#l.added + 1] = { at = at, cost = cost, total = l.base + sum + cost }
      l.dirty = true
    end
  end
  local e = newest(l, key)
  local ends, retry = o.now, o.now
  if e then
    ends = e.at + o.window
    l.ttl = lifetime(ends - o.now)
  end
  if admitted < o.times then retry = retryAt(o, l, key) end
  return admitted, used(l, key), 0, 0, ends, retry
end

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

local steps = { [COUNTER] = counter, [METER] = meter, [LIST] = log }
local out = { 0 }
local refused, count = false, #ARGV[1] / SIZE

-- pass steps through all operations; a second look charges nothing and keeps
-- what the first found to fit.
local function pass(look)
  local k = 0
  for i = 0, count - 1 do
    local o, prev, hasPrev, soft, refund = {}, nil, nil, nil, nil
    o.kind, o.span, soft, refund, hasPrev, o.now, o.by, o.byf, o.den, o.max, o.maxf, o.times, o.num, o.wden, o.till, o.ttl, o.window =
      struct.unpack(FORMAT, ARGV[1], i * SIZE + 1)
    o.refund = refund == 1
    if look then
      o.by, o.byf, o.max, o.times, o.refund = 0, 0, math.huge, 1, false
    end
    k = k + 1
    local key = KEYS[k]
    if hasPrev == 1 then
      k = k + 1
      prev = KEYS[k]
    end
    local admitted, whole, frac, before, ends, retry = steps[o.kind](o, key, prev)
    local r = 6 * i + 2
    if not look then
      out[r], out[r + 5] = admitted, retry
      if soft == 0 and admitted < o.times then refused = true end
    end
    out[r + 1], out[r + 2], out[r + 3], out[r + 4] = whole, frac, before, ends
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
