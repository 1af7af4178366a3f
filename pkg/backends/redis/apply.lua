-- Applies a batch of operations: backends.Cell.Step, backends.Log.Step and
-- backends.Batch.Decide.
--
-- KEYS     for each operation its key, and its Prev if it has one
-- ARGV[1]  the operations, packed (see pack in script.go)
-- ARGV[2]  how they are decided: 0 each on its own, 1 group by group, 2 all or
--          nothing
-- Returns  for each operation: admitted (BAD: its key does not hold such a cell,
--          BAD_PREV: its Prev does not), value whole, value frac, prev, until, retry at
--          (-1 for never)
--
-- Steps change copies of cells in `cells` and `lists`, which are written at the
-- end. So later operations see the effects of earlier ones, and dropping the
-- copies undoes all steps.
--
-- A counter is "count", or "count:until" where the window starts at a hit; a
-- meter is "whole" or "whole:frac"; a list has elements "at:cost:total", total
-- being the sum of the costs up to it, so that a sum is one subtraction. Credit
-- makes a count and a cost negative; a meter with credit is "-whole:frac:until". A
-- cell's end is judged by the caller's clock (now), not by whether Redis has
-- expired the key. All numbers stay below 2^53, where doubles are exact.
local COUNTER, METER = 0, 1 -- else a list
local FIXED, EVERY_HIT = 0, 2
local FIRM, QUOTA = 0, 1
local REFUND, UNDO, RESET, GRANT = 1, 2, 3, 4 -- ways, as in script.go; 0 is a charge
local ALL = 2 -- of ARGV[2]
local MAX = 4503599627370496 -- backends.MaxValue, 2^52
local NEVER = -1
local BAD, BAD_PREV = -9007199254740992, -2 -- no cell has the value BAD, -2^53
local GRACE = 1000 -- ms; as in script.go
local SKEW = 1000000 -- µs; backends.Skew
local FORMAT, SIZE = '<BBBBBBBdddddddddddddd', 7 + 14 * 8

-- Redis runs this file from the top for each call, so each function and table
-- at this level costs every call. Functions that few batches need are made when
-- they are needed.
local call, try, format, fmod, find, sub = redis.call, redis.pcall, string.format, math.fmod, string.find, string.sub

-- lifetime is how long a key lives, in ms, whose cell ends in us µs.
local function lifetime(us) return math.ceil(us / 1000) + GRACE end

-- weighted is ceil(count * num / den): long division in digits of 16 bits, so
-- that with den <= 2^35 nothing exceeds 2^52.
local function weighted(count, num, den)
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

local raw = {} -- replies of GET, kept for the second pass
local cells, lists = {}, {}

-- cell is the copy of the cell at key:
--   value  its first number; false if it is absent, BAD if the key holds
--          something else
--   rest   the number after the colon, or false
--   till   when the credit of a meter ends, or false
--   dirty  the cell has to be written
--   life   how long the key has to live, in ms; false if the cell was only read
local function cell(key)
  local c = cells[key]
  if c then return c end
  local s = raw[key]
  if s == nil then
    s = try('GET', key)
    raw[key] = s
  end
  c = { value = false, rest = false, till = false, dirty = false, life = false }
  if s then
    local value, rest = tonumber(s), 0
    if not value then
      if type(s) == 'table' then
        if not find(s.err, 'WRONGTYPE', 1, true) then error(s.err, 0) end
      else
        local colon = find(s, ':', 1, true)
        if colon then
          value, rest = tonumber(sub(s, 1, colon - 1)), tonumber(sub(s, colon + 1))
          if value and value < 0 and not rest then
            local second = find(s, ':', colon + 1, true)
            if second then
              rest, c.till = tonumber(sub(s, colon + 1, second - 1)), tonumber(sub(s, second + 1))
            end
          end
          c.rest = rest
        end
      end
    end
    -- NaN is not >= 0.
    if value and rest and value >= -MAX and rest >= 0 and value <= 2 * MAX and rest <= 2 * MAX then
      c.value = value
    else
      c.value = BAD
    end
  end
  cells[key] = c
  return c
end

local function counter(key, prev, span, way, forced, now, by, max, least, times, num, den, till, ttl)
  local before, refund = 0, way == REFUND or way == UNDO
  if prev then
    local p = cell(prev)
    if p.value == BAD then return BAD_PREV, 0, 0, 0, 0, 0 end
    before = math.max(0, p.value or 0)
    max = max - weighted(before, num, den)
  end
  local c = cell(key)
  if c.value == BAD then return BAD, 0, 0, 0, 0, 0 end
  local present = c.value and (span == FIXED or now < (c.rest or 0))
  local v, ends, lowered = 0, till, false
  if present then
    v = c.value
    if span ~= FIXED then
      ends, lowered = math.min(c.rest, till), c.rest > till
    end
  end
  local admitted = 0
  if refund then
    admitted = times
    if way == UNDO and least > 0 and ends > least then by = 0 end -- of a window that is over
    if v >= 0 then
      v = math.max(0, v - by * times)
    elseif way == UNDO then
      v = v - by * times
    end
  elseif way == GRANT then
    admitted = times
    v = math.max(math.min(v, max) - by, math.min(v, least))
  elseif forced then
    v = math.min(v + by * times, MAX)
    if v <= max then
      admitted = times
    elseif by > 0 then -- as backends.Op.Fitting has it
      local part = fmod(v - max, by)
      local beyond = (v - max - part) / by
      if part > 0 then beyond = beyond + 1 end
      admitted = math.max(0, times - beyond)
    end
  else
    while admitted < times and v + by <= max do
      v = v + by
      admitted = admitted + 1
    end
    if v > MAX then v = MAX end
  end
  if by == 0 and way ~= GRANT then return admitted, v, 0, before, ends, 0 end -- it only reads
  local charged = (admitted > 0 or forced) and (present or not refund)
  if way == GRANT then
    charged, c.value = true, v
  elseif charged then
    if span == EVERY_HIT and not refund then ends = till end
    c.value = v
  end
  if charged or lowered then
    c.dirty = true
    if span ~= FIXED then c.rest = ends end
  end
  if span == FIXED then
    c.life = ttl
  else
    c.life = lifetime(ends - now)
  end
  return admitted, v, 0, before, ends, 0
end

local function meter(key, way, now, by, byf, den, max, maxf, far, farf, times, till)
  local c = cell(key)
  if c.value == BAD then return BAD, 0, 0, 0, 0, 0 end
  local v, f, lowered = c.value, c.rest or 0, false
  local credit = false -- when it ends
  if v then
    if v < 0 then
      if not c.till then return BAD, 0, 0, 0, 0, 0 end
      if now < c.till then v, credit = v + now, c.till end
    elseif way ~= GRANT and (far + SKEW < v or far + SKEW == v and farf < f) then
      v, f, lowered = far, farf, true
    end
  end
  if not v or v < now and not credit then v, f = now, 0 end
  local admitted = 0
  if way == GRANT then
    admitted, lowered = times, true
    local least, leastf = now + far, farf
    if v < least or v == least and f < leastf then least, leastf = v, f end
    if max < v or max == v and maxf < f then v, f = max, maxf end
    v, f = v - by, f - byf
    if f < 0 then v, f = v - 1, f + den end
    if v < least or v == least and f < leastf then v, f = least, leastf end
    credit = v < now and till
  elseif way == REFUND or way == UNDO then
    admitted = times
    if v >= now or way == UNDO then
      for _ = 1, times do
        v, f = v - by, f - byf
        if f < 0 then v, f = v - 1, f + den end
      end
      if v < now and not credit then v, f = now, 0 end
    end
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
  credit = v < now and credit
  local ends = v
  if credit then
    ends = credit
  elseif f > 0 then
    ends = v + 1
  end
  if by == 0 and byf == 0 and way ~= GRANT then return admitted, v, f, 0, ends, 0 end -- it only reads
  c.life = lifetime(ends - now)
  if lowered or admitted > 0 then
    c.value, c.rest, c.till, c.dirty = false, false, credit, true
    if credit then
      c.value, c.rest = v - now, f
    elseif ends > now then
      c.value = v
      if f > 0 then c.rest = f end
    end
  end
  return admitted, v, f, 0, ends, 0
end

-- listSteps makes the functions for lists.
local function listSteps()
  local FOREIGN = {} -- the error for a key that does not hold a log

  local function number(s, least)
    local x = tonumber(s)
    if x and x >= least and x <= 2 * MAX then return x end
    error(FOREIGN)
  end

  local function element(s)
    local a = find(s, ':', 1, true)
    local b = a and find(s, ':', a + 1, true)
    if not b then error(FOREIGN) end
    return { at = number(sub(s, 1, a - 1), 0), cost = number(sub(s, a + 1, b - 1), -MAX), total = number(sub(s, b + 1), -2 * MAX) }
  end

  local newest

  -- store writes the copy of the log at key, unless operations have only read it.
  local function store(key, l)
    if not l.life then return end
    if l.dirty then
      if l.gone + l.cut >= l.length then
        call('DEL', key)
      else
        call('LTRIM', key, l.gone, -1 - l.cut)
      end
      for _, e in ipairs(l.added) do
        call('RPUSH', key, format('%.0f:%.0f:%.0f', e.at, e.cost, e.total))
      end
      if newest(l, key) then call('PEXPIRE', key, l.life) end
    elseif l.length > 0 and call('PTTL', key) == -1 then
      call('PEXPIRE', key, l.life)
    end
  end

  -- list is the copy of the log at key: the stored elements without the oldest
  -- `gone`, which have left the window, and without the newest `cut`, then `added`.
  -- `base` is the total of those that are gone; `tail` is the newest stored element
  -- that is not cut. A clock that was set back leaves elements dated after now: they
  -- are dated now, and neighbours that are no grants become one. `life` is how long the
  -- key has to live, in ms, once an operation does more than read.
  local function list(key, now, window)
    local l = lists[key]
    if l and (l.now == now or ARGV[2] ~= '0') then return l end
    if l then store(key, l) end -- operations of several callers have several times
    l = { now = now, gone = 0, cut = 0, added = {}, base = 0, life = false }
    l.length = try('LLEN', key)
    if type(l.length) == 'table' then
      if find(l.length.err, 'WRONGTYPE', 1, true) then error(FOREIGN) end
      error(l.length.err, 0)
    end
    -- The first element that counts is between l.gone and last: strides double from
    -- the head on, because few have gone since the last charge, and halve back.
    local last, stride = l.length, 1
    while l.gone < last do
      local i = math.min(l.gone + stride, last) - 1
      local e = element(call('LINDEX', key, i))
      if e.at > now - window then
        last, stride, l.base = i, math.ceil((i - l.gone) / 2), e.total - e.cost
      else
        l.gone, stride = i + 1, 2 * stride
      end
    end
    local late = {}
    while l.gone + l.cut < l.length do
      l.tail = element(call('LINDEX', key, -1 - l.cut))
      if l.tail.at <= now then break end
      l.cut, late[#late + 1] = l.cut + 1, l.tail
    end
    l.dirty = l.gone > 0 or #late > 0
    for i = #late, 1, -1 do
      local e, before = late[i], l.added[#l.added]
      if before and before.cost > 0 and e.cost > 0 then
        before.cost, before.total = before.cost + e.cost, e.total
      else
        l.added[#l.added + 1] = { at = now, cost = e.cost, total = e.total }
      end
    end
    lists[key] = l
    return l
  end

  -- newest is the last element of the copy, or nil.
  function newest(l, key)
    if #l.added > 0 then return l.added[#l.added] end
    if l.gone + l.cut >= l.length then return nil end
    if not l.tail then l.tail = element(call('LINDEX', key, -1 - l.cut)) end
    return l.tail
  end

  local function used(l, key)
    local e = newest(l, key)
    return e and e.total - l.base or 0
  end

  local function add(l, key, at, cost)
    local e = newest(l, key)
    l.added[#l.added + 1] = { at = at, cost = cost, total = (e and e.total or l.base) + cost }
    l.dirty = true
  end

  -- giveBack takes cost off the newest elements that are no grants.
  local function giveBack(l, key, cost)
    local grants = {}
    local e = newest(l, key)
    while e and cost > 0 do
      if #l.added > 0 then
        l.added[#l.added] = nil
      else
        l.cut, l.tail = l.cut + 1, nil
      end
      if e.cost < 0 then
        grants[#grants + 1] = e
      else
        if e.cost > cost then add(l, key, e.at, e.cost - cost) end
        cost = cost - e.cost
      end
      e = newest(l, key)
    end
    for i = #grants, 1, -1 do add(l, key, grants[i].at, grants[i].cost) end
    l.dirty = true
  end

  -- retryAt is when enough of the oldest costs have left for one more `by`.
  local function retryAt(l, key, by, max, window)
    if by > max then return NEVER end
    local gone = used(l, key) + by - max + l.base -- the total that has to leave
    local stored = l.length - l.cut
    for first = l.gone, stored - 1, 64 do
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

  local function step(key, way, now, by, max, least, times, window)
    local l = list(key, now, window)
    local admitted, sum = times, used(l, key)
    if way == REFUND or way == UNDO then
      local cost = by * times
      if way == REFUND then cost = math.min(cost, math.max(sum, 0)) end
      if cost > 0 then giveBack(l, key, cost) end
    elseif way == GRANT then
      local after = math.max(math.min(sum, max) - by, math.min(sum, least))
      if after < sum then add(l, key, now, after - sum) end
    else
      local room = max - sum
      if room < 0 then
        admitted = 0
      elseif by > 0 then
        admitted = math.min(times, math.floor(room / by))
      end
      if by * admitted > 0 then add(l, key, now, by * admitted) end
    end
    local e = newest(l, key)
    local ends, retry = now, now
    if e then
      ends = e.at + window
    end
    if by > 0 or way == GRANT then l.life = lifetime(ends - now) end
    if admitted < times then retry = retryAt(l, key, by, max, window) end
    return admitted, used(l, key), 0, 0, ends, retry
  end

  local function flush()
    for key, l in pairs(lists) do store(key, l) end
  end

  -- guarded is step, or BAD if the key does not hold a log.
  local function guarded(key, ...)
    local ok, admitted, whole, frac, before, ends, retry = pcall(step, key, ...)
    if ok then return admitted, whole, frac, before, ends, retry end
    if admitted ~= FOREIGN then error(admitted, 0) end
    lists[key] = nil
    return BAD, 0, 0, 0, 0, 0
  end

  return guarded, flush
end

local stepList, flushLists

-- write writes the cells that have changed. A key that has lost its expiry
-- (PERSIST, a restored dump) gets a new one: each SET has the key's lifetime, so
-- PTTL is needed only for keys that are not written.
-- Redis turns numbers below 10^17 into whole digits.
local function write()
  for key, c in pairs(cells) do
    if c.dirty then
      local v = c.value
      if not v then
        call('DEL', key)
      else
        if c.till then
          v = format('%.0f:%.0f:%.0f', v, c.rest, c.till)
        elseif c.rest then
          v = format('%.0f:%.0f', v, c.rest)
        end
        call('SET', key, v, 'PX', c.life)
      end
    elseif c.life and raw[key] and call('PTTL', key) == -1 then
      call('PEXPIRE', key, c.life)
    end
  end
  if flushLists then flushLists() end
end

local mode = tonumber(ARGV[2])
local out = {}
local tried -- of each operation, if they are decided together

-- pass applies the steps of all operations. The first pass, without charges,
-- tries each operation. The second pass charges operation n charges[n] times and
-- keeps the admitted counts of the first pass.
local function pass(charges)
  local k, n, r = 0, 0, 1
  for at = 1, #ARGV[1], SIZE do
    local kind, span, role, group, way, forced, hasPrev, now, by, byf, den, max, maxf, far, farf, times, num, wden, till, ttl, window =
      struct.unpack(FORMAT, ARGV[1], at)
    forced = forced == 1
    k, n = k + 1, n + 1
    local key, prev = KEYS[k], nil
    if hasPrev == 1 then
      k = k + 1
      prev = KEYS[k]
    end
    if charges then
      max, times, forced = math.huge, charges[n], false
      if times == 0 then -- as backends.Batch.Settled
        max, times = -math.huge, 1
        if way == REFUND or way == UNDO then by, byf, way = 0, 0, 0 end
      end
    end
    local admitted, whole, frac, before, ends, retry
    if way == RESET then
      for _, name in ipairs({ key, prev }) do
        call('DEL', name)
        raw[name], cells[name], lists[name] = false, nil, nil -- also the changes of earlier operations
      end
      admitted, whole, frac, before, ends, retry = times, kind == METER and now or 0, 0, 0, kind == COUNTER and till or now, now
    elseif kind == COUNTER then
      admitted, whole, frac, before, ends, retry = counter(key, prev, span, way, forced, now, by, max, far, times, num, wden, till, ttl)
    elseif kind == METER then
      admitted, whole, frac, before, ends, retry = meter(key, way, now, by, byf, den, max, maxf, far, farf, times, till)
    else
      if not stepList then stepList, flushLists = listSteps() end
      admitted, whole, frac, before, ends, retry = stepList(key, way, now, by, max, far, times, window)
    end
    if charges then
      if admitted >= 0 then admitted, retry = out[r], out[r + 5] end
    elseif tried then
      tried[n] = {
        role = role, group = group,
        fits = admitted == times,
        kept = forced and admitted >= 0 and admitted < times, -- charged though it does not fit
        charged = forced and admitted >= 0 and times or math.max(0, admitted),
      }
    end
    out[r], out[r + 1], out[r + 2], out[r + 3], out[r + 4], out[r + 5] = admitted, whole, frac, before, ends, retry
    r = r + 6
  end
end

if mode == 0 then
  pass(nil)
  write()
  return out
end

-- decide is backends.Batch.Decide: it returns how many times each operation is
-- charged, or nil if the trial has charged each operation that often.
local function decide()
  local refused, quotas, refusals = false, 0, 0 -- if undecided operations refuse, too
  local first = 1
  while tried[first] do
    local group, role = tried[first].group, tried[first].role
    local last, passes = first, true
    repeat
      passes = passes and tried[last].fits
      last = last + 1
    until group == 0 or not tried[last] or tried[last].group ~= group
    for i = first, last - 1 do tried[i].passes = passes end
    if role == QUOTA then
      quotas = quotas + 1
      if not passes then refusals = refusals + 1 end
    elseif role == FIRM then
      refused = refused or not passes
    end
    first = last
  end
  local nothing = mode == ALL and (refused or quotas > 0 and refusals == quotas)
  local charges, asTried = {}, true
  for i, op in ipairs(tried) do
    charges[i] = op.charged
    if not op.kept and (nothing or op.group > 0 and not op.passes) then charges[i] = 0 end
    asTried = asTried and charges[i] == op.charged
  end
  if asTried then return nil end
  return charges
end

tried = {}
pass(nil)
local charges = decide()
if charges then
  cells, lists = {}, {}
  pass(charges)
end
write()
return out
