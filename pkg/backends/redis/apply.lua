-- Applies a batch of operations: backends.Cell.Step, backends.Log.Step and
-- backends.Batch.Decide.
--
-- KEYS     for each operation its key, its Prev if it has one, and if it has a Hold the keys
--          of its records (see packFurther in script.go)
-- ARGV[1]  the operations, packed (see pack in script.go)
-- ARGV[2]  how they are decided: 0 each on its own, 1 group by group, 2 all or
--          nothing
-- ARGV[3]  what packFurther has packed of operations with Terms or Hold, if there are any
-- Returns  for each operation: admitted (BAD: its key does not hold such a cell,
--          BAD_PREV: its Prev does not), value whole, value frac, prev, until, retry at
--          (-1 for never); then for each operation of ARGV[3] backends.Account: hold, held
--          whole, held frac, cut whole, cut frac
--
-- Steps change copies of cells in `cells` and `lists`, which are written at the
-- end. So later operations see the effects of earlier ones, and dropping the
-- copies undoes all steps.
--
-- A counter is "count", or "count:until" where the window starts at a hit; a
-- meter is "whole" or "whole:frac", less its shift; a counter that carries its surplus is
-- "count:period"; a list has elements "at:cost:total", total
-- being the sum of the costs up to it, so that a sum is one subtraction. Credit
-- makes a count and a cost negative; a meter with credit is "-whole:frac:until". A
-- cell's end is judged by the caller's clock (now), not by whether Redis has
-- expired the key. All numbers stay below 2^53, where doubles are exact.
local COUNTER, METER = 0, 1 -- else a list
local FIXED, EVERY_HIT, CARRIED = 0, 2, 3
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

local plus, overdraw -- see furtherSteps

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

local function counter(key, prev, span, way, forced, now, by, max, least, times, num, den, till, ttl, window, more)
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
  local v, ends, lowered, period = 0, till, false, nil
  if span == CARRIED then
    present, period = c.value, more.period
    if present then
      local windows = period - (c.rest or 0)
      v, lowered = c.value, windows ~= 0 and windows ~= -1
      if windows > 0 then
        v = math.max(0, v - windows * more.carry)
      elseif windows == -1 then -- a clock that is ahead has begun the next window
        period, till = c.rest, till + window
      end
    end
  elseif present then
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
  elseif more and (more.overdraws or more.partial) then
    admitted, v = overdraw(more, v, 0, by, 0, 1, max, 0, times)
    forced, admitted = admitted and by > 0, admitted or 0
    if v > MAX then v = MAX end
  else
    while admitted < times and v + by <= max do
      v = v + by
      admitted = admitted + 1
    end
    if v > MAX then v = MAX end
  end
  if period then ends = till + math.floor((math.max(v, 1) - 1) / more.carry) * window end
  if by == 0 and way ~= GRANT then return admitted, v, 0, before, ends, 0 end -- it only reads
  local charged = (admitted > 0 or forced) and (present or not refund)
  if way == GRANT then
    charged, c.value = true, v
  elseif period and lowered then
    c.value = v
  elseif charged then
    if span == EVERY_HIT and not refund then ends = till end
    c.value = v
  end
  if charged or lowered then
    c.dirty = true
    if span ~= FIXED then c.rest = period or ends end
  end
  if span == FIXED then
    c.life = ttl
  else
    c.life = lifetime(ends - now)
  end
  return admitted, v, 0, before, ends, 0
end

local function meter(key, way, now, by, byf, den, max, maxf, far, farf, times, till, more)
  local c = cell(key)
  if c.value == BAD then return BAD, 0, 0, 0, 0, 0 end
  local v, f, lowered = c.value, c.rest or 0, false
  local credit = false -- when it ends
  if v and more then
    if f >= den then v, f = v + 1, 0 end -- of another denominator
    if v > 0 then v, f = plus(v, f, more.shift, more.shiftf, den) end
  end
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
  elseif more and (more.overdraws or more.partial) then
    admitted, v, f = overdraw(more, v, f, by, byf, den, max, maxf, times)
    lowered, admitted = true, admitted or 0
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
      if more then
        v, f = v - more.shift, f - more.shiftf
        if f < 0 then v, f = v - 1, f + den end
      end
      c.value = v
      if f > 0 then c.rest = f end
      if more then v, f = plus(v, f, more.shift, more.shiftf, den) end
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

  local function text(e) return format('%.0f:%.0f:%.0f', e.at, e.cost, e.total) end

  local newest

  -- store writes the copy of the log at key, unless operations have only read it.
  local function store(key, l)
    if not l.life then return end
    if l.dirty then
      local first = 1
      if l.gone + l.cut >= l.length then
        call('DEL', key)
      elseif l.gone == 0 and l.cut == 1 and #l.added > 0 then
        call('LSET', key, -1, text(l.added[1]))
        first = 2
      else
        call('LTRIM', key, l.gone, -1 - l.cut)
      end
      for i = #l.front, 1, -1 do call('LPUSH', key, text(l.front[i])) end
      for i = first, #l.added do call('RPUSH', key, text(l.added[i])) end
      if newest(l, key) then call('PEXPIRE', key, l.life) end
    elseif l.length > 0 and call('PTTL', key) == -1 then
      call('PEXPIRE', key, l.life)
    end
  end

  -- list is the copy of the log at key: the stored elements without the oldest
  -- `gone`, which have left the window, and without the newest `cut`, then `added`; and
  -- before them `front`. `base` is the total before them; `tail` is the newest stored element
  -- that is not cut. A clock that was set back leaves elements dated after now: they
  -- get the date of now, and neighbours that are no grants become one. `life` is how long the
  -- key has to live, in ms, once an operation does more than read.
  local function list(key, now, window, date)
    local l = lists[key]
    if l and (l.now == now or ARGV[2] ~= '0') then return l end
    if l then store(key, l) end -- operations of several callers have several times
    l = { now = now, gone = 0, cut = 0, front = {}, added = {}, base = 0, life = false }
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
        l.added[#l.added + 1] = { at = date, cost = e.cost, total = e.total }
      end
    end
    lists[key] = l
    return l
  end

  -- newest is the last element of the copy, or nil.
  function newest(l, key)
    if #l.added > 0 then return l.added[#l.added] end
    if l.gone + l.cut >= l.length then return l.front[#l.front] end
    if not l.tail then l.tail = element(call('LINDEX', key, -1 - l.cut)) end
    return l.tail
  end

  local function used(l, key)
    local e = newest(l, key)
    return e and e.total - l.base or 0
  end

  -- pop removes the newest element.
  local function pop(l)
    if #l.added > 0 then
      l.added[#l.added] = nil
    elseif l.gone + l.cut < l.length then
      l.cut, l.tail = l.cut + 1, nil
    else
      l.front[#l.front] = nil
    end
  end

  -- add appends an element, or adds to the newest one if that is of the same part.
  local function add(l, key, at, cost, parts)
    local e = newest(l, key)
    if parts and e and e.at == at and e.cost > 0 then
      pop(l)
      l.added[#l.added + 1], l.dirty = { at = at, cost = e.cost + cost, total = e.total + cost }, true
      return
    end
    l.added[#l.added + 1] = { at = at, cost = cost, total = (e and e.total or l.base) + cost }
    l.dirty = true
  end

  -- giveBack takes cost off the newest elements that are no grants.
  local function giveBack(l, key, cost)
    local grants = {}
    local e = newest(l, key)
    while e and cost > 0 do
      pop(l)
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

  -- between is the elements from..to of the copy, which is all stored or all in added.
  local function between(l, key, from, to)
    local found = {}
    if #l.added > 0 then
      for i = from, to do found[#found + 1] = l.added[i] end
    elseif from <= to then
      for i, s in ipairs(call('LRANGE', key, l.gone + from - 1, l.gone + to - 1)) do found[i] = element(s) end
    end
    return found
  end

  -- take takes cost off the oldest elements that are no grants, or off those with that date.
  -- Totals tell sums, so the elements before them or those after them are written anew,
  -- whichever are fewer.
  local function take(l, key, cost, date)
    local stored = l.length - l.gone - l.cut
    if #l.front + #l.added > 0 then -- by operations before this one
      local all = l.front
      if stored > 0 then
        for _, s in ipairs(call('LRANGE', key, l.gone, -1 - l.cut)) do all[#all + 1] = element(s) end
      end
      for _, e in ipairs(l.added) do all[#all + 1] = e end
      l.front, l.added, l.cut, l.tail, stored = {}, all, l.length - l.gone, nil, 0
    end
    local n, first = stored + #l.added, 1
    local function at(i) return l.added[i] or element(call('LINDEX', key, l.gone + i - 1)) end
    if date > 0 then
      local past = n + 1
      while first < past do
        local middle = math.floor((first + past) / 2)
        if at(middle).at < date then first = middle + 1 else past = middle end
      end
    end
    local last, left = first - 1, cost
    while last < n and left > 0 do
      local e = at(last + 1)
      if date > 0 and e.at ~= date then break end
      left, last = left - math.max(0, math.min(left, e.cost)), last + 1
    end
    local older, from, to, rest = stored > 0 and last <= n - first, first, n, {}
    if older then
      from, to = 1, last
    elseif stored == 0 then
      rest = between(l, key, 1, first - 1)
    end
    local taken, off = 0, older and cost - left or 0
    for i, e in ipairs(between(l, key, from, to)) do
      i = from + i - 1
      if i >= first and i <= last and e.cost > 0 then
        local part = math.min(e.cost, cost)
        e.cost, cost, taken = e.cost - part, cost - part, taken + part
      end
      e.total = e.total + off - taken
      if e.cost ~= 0 then rest[#rest + 1] = e end
    end
    if older then
      l.gone, l.base, l.front = l.gone + last, l.base + off, rest
    else
      l.cut, l.added, l.tail = l.length - l.gone - (stored > 0 and first - 1 or 0), rest, nil
    end
    l.dirty = true
  end

  -- retryAt is when enough of the oldest costs have left for one more `by`.
  local function retryAt(l, key, by, max, window)
    if by > max then return NEVER end
    local gone = used(l, key) + by - max + l.base -- the total that has to leave
    local stored = l.length - l.cut
    for _, e in ipairs(l.front) do
      if e.total >= gone then return e.at + window end
    end
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

  local function step(key, way, now, by, max, least, times, window, more)
    local date = more and more.date or now
    local l = list(key, now, window, date)
    local admitted, sum = times, used(l, key)
    if way == REFUND or way == UNDO then
      local cost = by * times
      if way == REFUND then cost = math.min(cost, math.max(sum, 0)) end
      if cost > 0 and more and (more.ends > 0 or more.oldest and way == REFUND) then
        take(l, key, cost, more.ends)
      elseif cost > 0 then
        giveBack(l, key, cost)
      end
    elseif way == GRANT then
      local after = math.max(math.min(sum, max) - by, math.min(sum, least))
      if after < sum then add(l, key, date, after - sum) end
    elseif more and more.partial then
      local part = math.max(0, math.min(by, max - sum))
      if part > 0 then add(l, key, date, part, more.parts) end
      more.cut = by - part
    else
      local room = max - sum
      if room < 0 then
        admitted = 0
      elseif by > 0 then
        admitted = math.min(times, math.floor(room / by))
      end
      if by * admitted > 0 then add(l, key, date, by * admitted, more and more.parts) end
    end
    local e = newest(l, key)
    local ends, retry = now, now
    if e then
      ends = e.at + window
    end
    if by > 0 or way == GRANT then l.life = lifetime(ends - now + (more and more.slack or 0)) end
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

local function step(kind, key, prev, span, way, forced, now, by, byf, den, max, maxf, far, farf, times, num, wden, till, ttl, window, more)
  if kind == COUNTER then
    return counter(key, prev, span, way, forced, now, by, max, far, times, num, wden, till, ttl, window, more)
  elseif kind == METER then
    return meter(key, way, now, by, byf, den, max, maxf, far, farf, times, till, more)
  end
  if not stepList then stepList, flushLists = listSteps() end
  return stepList(key, way, now, by, max, far, times, window, more)
end

-- furtherSteps makes the functions for operations with Terms or Hold.
local function furtherSteps()
  local FURTHER, LENGTH = '<BBBBBBBBc16dddddddddddddd', 8 + 16 + 14 * 8
  -- plus is v + f/den + w + g/den.
  function plus(v, f, w, g, den)
    v, f = v + w, f + g
    if f >= den then return v + 1, f - den end
    return v, f
  end

  -- overdraw is backends.overdraw and, of a partial charge, backends.raise. It returns how many
  -- charges fit, and the value after it; nil if it is not charged. more.cut is what is left.
  function overdraw(more, v, f, by, byf, den, max, maxf, times)
    local admitted, w, g = times
    if more.overdraws then
      w, g = plus(v, f, more.unit, more.unitf, den)
      if max < w or max == w and maxf < g then
        if more.reserves then return nil, v, f end
        admitted = 0
      end
      max, maxf = plus(max, maxf, more.debt, more.debtf, den)
    end
    if max < v or max == v and maxf < f then max, maxf = v, f end
    w, g = plus(v, f, by, byf, den)
    if max < w or max == w and maxf < g then
      more.cut, more.cutf = w - max, g - maxf
      if more.cutf < 0 then more.cut, more.cutf = more.cut - 1, more.cutf + den end
      return admitted, max, maxf
    end
    return admitted, w, g
  end

  -- unpack is the n-th part of ARGV[3]. KEYS[k] is the last key before those of its records.
  local function unpack(n, k)
    local overdraws, parts, oldest, partial, generations, open, hasID, known, id,
      debt, debtf, unit, unitf, shift, shiftf, carry, period, date, slack, ends, mark, last, life =
      struct.unpack(FURTHER, ARGV[3], 1 + (n - 1) * LENGTH)
    local more = {
      overdraws = overdraws == 1, parts = parts == 1, oldest = oldest == 1, partial = partial == 1,
      debt = debt, debtf = debtf, unit = unit, unitf = unitf, shift = shift, shiftf = shiftf,
      carry = carry, period = period, date = date, slack = slack, ends = ends,
      hold = 0, cut = 0, cutf = 0,
    }
    if generations > 0 then
      more.id, more.known, more.mark, more.last, more.life = hasID == 1 and id, known == 1, mark, last, life
      more.keys = {}
      for i = 1, generations do more.keys[i] = KEYS[k + i] end
      k = k + generations
      if open == 1 then
        k = k + 1
        more.open = KEYS[k]
      end
    end
    return more, k
  end

  return unpack
end

-- holdSteps makes the functions for operations with a Hold.
local function holdSteps()
  local HELD, SETTLED, UNCHANGED = 1, 2, 3 -- backends.HoldState
  local records, opens = {}, {} -- copies

  -- record is the copy of a reservation: by, byf, mark and ends, or ends and settled, or
  -- nothing; `at` is the key that has it. nil if a key holds something else. An earlier
  -- reservation of the ID, which has ended, may be left in an older generation.
  local function record(more)
    local r = {}
    for _, key in ipairs(more.keys) do
      local name = key .. more.id
      if records[name] then return records[name] end
      records[name] = r
    end
    for _, key in ipairs(more.keys) do
      local s = try('HGET', key, more.id)
      if type(s) == 'table' then return nil end
      if s then
        r.at, r.settled = key, #s == 8
        if r.settled then
          r.ends = struct.unpack('<d', s)
        else
          r.by, r.mark, r.ends = struct.unpack('<ddd', s)
          r.byf = #s > 24 and struct.unpack('<d', s, 25) or 0
        end
        break
      end
    end
    return r
  end

  -- opened is the copy of what is to come back: "lapsed", what ended until then has, and
  -- ";ends:mark:by:byf" for each end and mark, in their order. nil as for record.
  local function opened(key)
    local o = opens[key]
    if not o then
      local s = try('GET', key)
      if type(s) == 'table' or s and not find(s, '^%d+') then return nil end
      o = { text = s or '0' }
      opens[key] = o
    end
    return o
  end

  -- change adds by to what comes back at ends, or takes it off if by is negative.
  local function change(o, ends, mark, by, byf, den, add)
    local head = format(';%.0f:%.0f:', ends, mark)
    local from, to = find(o.text, head, 1, true)
    if from then
      local _, till, w, g = find(o.text, '^(%d+):(%d+)', to + 1)
      if add then
        by, byf = plus(tonumber(w), tonumber(g), by, byf, den)
      else
        by, byf = tonumber(w) - by, tonumber(g) - byf
        if byf < 0 then by, byf = by - 1, byf + den end
      end
      to = till
    elseif add then
      from, to = #o.text + 1, #o.text
      local before = tonumber(string.match(o.text, ';(%d+):[^;]*$') or 0)
      if before > ends then
        for at, e in string.gmatch(o.text, '();(%d+):') do
          if tonumber(e) > ends then
            from, to = at, at - 1
            break
          end
        end
      end
    else
      return
    end
    local entry = (by > 0 or byf > 0) and head .. format('%.0f:%.0f', by, byf) or ''
    o.text, o.dirty = sub(o.text, 1, from - 1) .. entry .. sub(o.text, to + 1), true
  end

  -- isOver is backends.Record.isOver.
  local function isOver(more, r, kind, prev, now, window)
    if kind == COUNTER then return prev and r.mark < more.mark - window or not prev and r.mark ~= more.mark end
    return kind ~= METER and r.mark <= now - window
  end

  -- hold is backends.State.StepHold, after what has lapsed has come back.
  local function hold(more, kind, key, prev, span, way, forced, now, by, byf, den, max, maxf, far, farf, times, ...)
    local o, lapsed, dates = nil, 0, more.ends
    if more.open then
      o = opened(more.open)
      if not o then return BAD, 0, 0, 0, 0, 0 end
      o.life = math.max(o.life or 0, more.life)
      while true do
        local _, last, ends, mark, back, backf = find(o.text, '^%d+;(%d+):(%d+):(%d+):(%d+)')
        ends = tonumber(ends)
        if not last or ends > now then break end
        o.text, o.dirty = format('%.0f', ends) .. sub(o.text, last + 1), true
        if kind ~= COUNTER or tonumber(mark) == more.mark then
          more.ends = tonumber(mark)
          step(kind, key, prev, span, REFUND, false, now, tonumber(back), tonumber(backf), den, max, maxf,
            way == GRANT and max or far, way == GRANT and maxf or farf, 1, ...)
          more.ends = dates
        end
      end
      lapsed = tonumber(string.match(o.text, '^%d+'))
    end
    if not more.id or way == GRANT then
      return step(kind, key, prev, span, way, forced, now, by, byf, den, max, maxf, far, farf, times, ...)
    end
    local r = record(more)
    if not r then return BAD, 0, 0, 0, 0, 0 end
    local refund, state = way == REFUND or way == UNDO, 0
    local on, cost, costf = way, by, byf
    local back = false
    local found = r.ends and now < r.ends and (r.settled or r.ends > lapsed)
    if found and more.known and not r.settled and isOver(more, r, kind, prev, now, select(-2, ...)) then found = false end
    if not found then
      if refund then
        on, cost, costf = 0, 0, 0
      elseif more.known then
        state = SETTLED
      elseif by > 0 or byf > 0 then
        state, more.reserves = HELD, true
      end
    elseif r.settled then
      state, on, cost, costf = UNCHANGED, 0, 0, 0
    else
      state, cost, costf, forced = SETTLED, by - r.by, byf - r.byf, false
      if costf < 0 then cost, costf = cost - 1, costf + den end
      if refund then
        back, cost, costf = true, r.by, r.byf
      elseif cost < 0 then
        back, cost, costf = true, r.by - by, r.byf - byf
        if costf < 0 then cost, costf = cost - 1, costf + den end
      elseif more.debt == 0 and more.debtf == 0 then
        more.partial = true
      end
      if back and kind == COUNTER and r.mark ~= more.mark then
        on, cost, costf = 0, 0, 0
      elseif back and not refund then
        on = REFUND
      end
      if back then more.ends = r.mark end
    end
    local given = state == SETTLED and cost == 0 and costf == 0
    if on == 0 and cost == 0 and costf == 0 and (state ~= 0 or refund) then
      max, maxf, more.overdraws, more.partial = math.huge, 0, false, false
    end
    local admitted, whole, frac, before, ends, retry =
      step(kind, key, prev, span, on, forced, now, cost, costf, den, max, maxf, far, farf, times, ...)
    more.ends = dates
    if admitted < 0 then return admitted, whole, frac, before, ends, retry end
    if state == HELD and admitted == 0 then state = 0 end
    more.hold = state
    if state == SETTLED and found then
      more.held, more.heldf = r.by, r.byf
      if given and not refund and (by ~= r.by or byf ~= r.byf) then -- the window is over
        more.cut, more.cutf = r.by - by, r.byf - byf
        if more.cutf < 0 then more.cut, more.cutf = more.cut - 1, more.cutf + den end
      end
    end
    if state == SETTLED then
      if o and r.by and not r.settled then change(o, r.ends, r.mark, r.by, r.byf, den, false) end
      r.ends, r.settled, r.dirty = way ~= UNDO and more.last, true, true
    elseif state == HELD then
      r.by, r.byf, r.mark, r.ends, r.settled, r.dirty = by, byf, more.mark, more.last, false, true
      if o then change(o, r.ends, r.mark, by, byf, den, true) end
    end
    if o and (state ~= 0 or by > 0 or byf > 0) then
      o.life, o.used = math.max(o.life, ends > now and lifetime(ends - now) or 0), true
    end
    if r.dirty then r.id, r.key, r.life = more.id, more.keys[#more.keys - 1], more.life end
    if state >= SETTLED then admitted = times end
    return admitted, whole, frac, before, ends, retry
  end

  -- forget drops the copies, and with keys what they hold: those of a reset.
  local function forget(more)
    if not more then
      records, opens = {}, {}
      return
    end
    for _, key in ipairs(more.keys) do
      call('DEL', key)
      for name, r in pairs(records) do -- r may have the names of further keys
        if sub(name, 1, #key) == key then r.by, r.ends, r.at, r.dirty = nil, nil, nil, false end
      end
    end
    if more.open then
      call('DEL', more.open)
      opens[more.open] = nil
    end
  end

  local function flush()
    for _, r in pairs(records) do
      if r.dirty then
        r.dirty = false
        if r.at and (r.at ~= r.key or not r.ends) then call('HDEL', r.at, r.id) end
        if r.ends then
          local s = struct.pack('<d', r.ends)
          if not r.settled then
            s = struct.pack('<ddd', r.by, r.mark, r.ends)
            if r.byf > 0 then s = s .. struct.pack('<d', r.byf) end
          end
          if call('HSET', r.key, r.id, s) == 1 then call('PEXPIRE', r.key, r.life) end
        end
      end
    end
    for key, o in pairs(opens) do
      if o.dirty then
        call('SET', key, o.text, 'PX', o.life)
      elseif o.used and find(o.text, ';', 1, true) then
        call('PEXPIRE', key, o.life)
      end
    end
  end

  return hold, forget, flush
end

local unpackFurther, stepHold, forgetHolds, flushHolds
if ARGV[3] then unpackFurther = furtherSteps() end

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
  if flushHolds then flushHolds() end
end

local mode = tonumber(ARGV[2])
local out = {}
local tried -- of each operation, if they are decided together

-- pass applies the steps of all operations. The first pass, without charges,
-- tries each operation. The second pass charges operation n charges[n] times and
-- keeps the admitted counts of the first pass.
local function pass(charges)
  local k, n, r, m = 0, 0, 1, 0
  local account = {} -- of the operations in ARGV[3]
  for at = 1, #ARGV[1], SIZE do
    local kind, span, role, group, way, forced, hasPrev, now, by, byf, den, max, maxf, far, farf, times, num, wden, till, ttl, window =
      struct.unpack(FORMAT, ARGV[1], at)
    forced = forced == 1
    k, n = k + 1, n + 1
    local key, prev = KEYS[k], nil
    local more = nil
    local hasMore = hasPrev >= 2
    if hasMore then hasPrev, m = hasPrev - 2, m + 1 end
    if hasPrev == 1 then
      k = k + 1
      prev = KEYS[k]
    end
    if hasMore then
      more, k = unpackFurther(m, k)
      if more.keys and not stepHold then stepHold, forgetHolds, flushHolds = holdSteps() end
    end
    if charges and not (tried[n].same and charges[n] > 0) then
      max, times, forced = math.huge, charges[n], false
      if more and times > 0 then more.overdraws = false end
      if times == 0 then -- as backends.Batch.Settled
        max, times = -math.huge, 1
        if way == REFUND or way == UNDO then
          by, byf, way = 0, 0, 0
          if more then max, more.id, more.overdraws, more.partial = math.huge, false, false, false end
        end
      end
    end
    local admitted, whole, frac, before, ends, retry
    if way == RESET then
      for _, name in ipairs({ key, prev }) do
        call('DEL', name)
        raw[name], cells[name], lists[name] = false, nil, nil -- also the changes of earlier operations
      end
      if more and more.keys then forgetHolds(more) end
      admitted, whole, frac, before, ends, retry = times, kind == METER and now or 0, 0, 0, kind == COUNTER and till or now, now
    elseif more and more.keys then
      admitted, whole, frac, before, ends, retry =
        stepHold(more, kind, key, prev, span, way, forced, now, by, byf, den, max, maxf, far, farf, times, num, wden, till, ttl, window, more)
    else
      admitted, whole, frac, before, ends, retry =
        step(kind, key, prev, span, way, forced, now, by, byf, den, max, maxf, far, farf, times, num, wden, till, ttl, window, more)
    end
    if charges then
      if admitted >= 0 then admitted, retry = out[r], out[r + 5] end
    elseif tried then
      local settles = more and more.hold >= 2
      local debt = more and more.overdraws and way == 0
      local over = debt and not more.reserves and (by > 0 or byf > 0) -- backends.Op.Overdraws
      forced = forced or over
      tried[n] = {
        role = role, group = group,
        fits = admitted == times,
        kept = settles or over or forced and admitted >= 0 and admitted < times, -- charged though it does not fit
        charged = forced and admitted >= 0 and times or math.max(0, admitted),
        same = settles or debt, -- charged as it is
      }
    end
    if more then
      local at = #account
      account[at + 1], account[at + 2], account[at + 3], account[at + 4], account[at + 5] = more.hold, more.held or 0, more.heldf or 0, more.cut, more.cutf
    end
    out[r], out[r + 1], out[r + 2], out[r + 3], out[r + 4], out[r + 5] = admitted, whole, frac, before, ends, retry
    r = r + 6
  end
  for i = 1, m * 5 do out[r + i - 1] = account[i] end
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
  if forgetHolds then forgetHolds() end
  pass(charges)
end
write()
return out
