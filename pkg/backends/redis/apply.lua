-- Applies a batch of operations: backends.Cell.Step, backends.Log.Step, backends.State.StepHold
-- and backends.Batch.Decide.
--
-- Redis runs the script from the top for each call, where each function and each local that a
-- function uses costs the call. So each call gets only the sections that its operations need:
-- the lines between "--#if" and "--#end" belong to a section, or to any of several. What is
-- seldom needed is written where it is needed and not as a function. Words in capitals are
-- constants of apply.go, which are written into the script.
--
-- KEYS     for each operation its key; if it has a Hold or is a reset, of a list also that of its
--          open reservations; and that of the record of its ID, if it has one
-- ARGV[1]  the operations, packed (see pack in apply.go)
-- ARGV[2]  ALL if they are decided all or nothing; if together, but without it, group by group
-- Returns  of each operation as little-endian doubles: admitted (BAD: its key does not hold such
--          a cell), value whole, value frac, prev, until, retry at
--          (NEVER); and if it has terms backends.Account: hold, held whole, held frac, cut
--          whole, cut frac
--
-- A counter is "count", or "count:until" where the window starts at a hit; a meter is "whole" or
-- "whole:frac", less its shift; a counter that carries its surplus is "count:window", and one of a
-- sliding window "count:window:count of the window before"; a list has
-- elements "at:cost:total", total being the sum of the costs up to it, so that a sum is one
-- subtraction, or "at:cost:total:number" if their backends.Cost.Number is not at. Credit makes a
-- count and a cost negative; a meter with credit is "-whole:frac:until". A cell's end is judged by
-- the caller's clock (now), not by whether Redis has expired the key. All numbers stay below 2^53,
-- where doubles are exact.
--
-- Open reservations (backends.Lapsing) stand behind the value of a counter and a meter: ";number:stays",
-- and ";ends:mark:by:byf" for each of Lapsing.Back. Those of a list stand behind a 0 at a key of
-- their own, and byf is Record.At there. A record is doubles: ends, if it is settled, or by, mark, ends,
-- number and byf.

-- lifetime is how long a key lives, in ms, whose cell ends in us µs.
local function lifetime(us) return math.ceil(us / 1000) + GRACE end

--#if terms
--#if counter meter hold
-- plus is v + f/den + w + g/den.
local function plus(v, f, w, g, den)
  v, f = v + w, f + g
  if f >= den then return v + 1, f - den end
  return v, f
end

-- minus is v + f/den - w - g/den.
local function minus(v, f, w, g, den)
  v, f = v - w, f - g
  if f < 0 then return v - 1, f + den end
  return v, f
end
--#end
--#end

--#if counter meter hold
local tail  -- the open reservations of the cell that was read last, or nil
local lasts -- the life of that cell is known to be enough for them

-- read is the cell at key: its first number, false if it is absent, BAD if the key holds
-- something else; the number after the colon, or false; and the one after that, or nil: when the
-- credit of a meter ends, or the count of the window before.
local function read(key)
  local s = redis.pcall('GET', key)
  tail = nil
  if not s then return false, false end
  local value, rest, third = tonumber(s), false, nil
  if not value then
    if type(s) == 'table' then
      if not string.find(s.err, 'WRONGTYPE', 1, true) then error(s.err, 0) end
      return BAD
    end
    tail = string.match(s, ';%d+:%d+.*$')
    if tail then s = string.sub(s, 1, -1 - #tail) end
    value = tonumber(s)
  end
  if not value then
    value, rest, third = string.match(s, '^(%-?%d+):(%d+):?(%d*)$')
    if not value then return BAD end
    value, rest, third = tonumber(value), tonumber(rest), tonumber(third)
  end
  -- NaN is not >= 0.
  if value >= -MAX and value <= 2 * MAX and (rest or 0) <= 2 * MAX and (third or 0) <= 2 * MAX then return value, rest, third end
  return BAD
end

-- write stores a cell that ends in us µs; value is false to remove it. While reservations are open
-- on it, it stays as long as it would have without the write.
local function write(key, us, value, rest, third)
  if not value and not tail then
    redis.call('DEL', key)
    return
  end
  value = value or 0
  if third then
    value = string.format('%.0f:%.0f:%.0f', value, rest, third)
  elseif rest then
    value = string.format('%.0f:%.0f', value, rest)
  end -- Redis turns numbers below 10^17 into whole digits
  local life = lifetime(us)
  if tail then
    value = (rest and value or string.format('%.0f', value)) .. tail
    if not lasts then life = math.max(life, redis.call('PTTL', key)) end
  end
  redis.call('SET', key, value, 'PX', life)
end

-- keep gives a key that has lost its expiry (PERSIST, a restored dump) a new one. SET has the
-- key's lifetime, so PTTL is needed only for keys that are not written.
local function keep(key, us)
  if redis.call('PTTL', key) == -1 then redis.call('PEXPIRE', key, lifetime(us)) end
end
--#end

--#if together hold
-- Steps change copies of the cells, which are written at the end. So dropping the copies undoes
-- all steps. What a group changes is noted in undone, so that it can be taken back alone.
local copies = {}
--#if together
local lists = {}
local undone -- nil while no group runs
local function note(of, name)
  if undone then undone[#undone + 1] = { of = of, name = name, was = of[name] or nil } end
end

-- copy is a deep copy of a table.
local function copy(t)
  local c = {}
  for name, v in pairs(t) do c[name] = type(v) == 'table' and copy(v) or v end
  return c
end
--#end

--#if counter meter hold
local get, stored = read, {}
function read(key)
  local c = copies[key] or stored[key]
  if not c then
    local value, rest, third = get(key)
    c = { value = value, rest = rest, third = third, open = tail }
    stored[key] = c
  end
  return c.value, c.rest, c.third
end

local set = write
function write(key, us, value, rest, third)
  local c = copies[key] or stored[key]
  local open = c.open
  if c.lasts then us = math.max(us, c.us) end
  --#if together
  note(copies, key)
  --#end
  copies[key] = { us = us, value = value or open and 0, rest = rest or false, third = third, open = open, dirty = true, lasts = c.lasts }
end

local guard = keep
function keep(key, us)
  local c = copies[key] or stored[key]
  --#if together
  note(copies, key)
  --#end
  if c.lasts then us = math.max(us, c.us) end
  copies[key] = { us = us, value = c.value, rest = c.rest, third = c.third, open = c.open, dirty = c.dirty, lasts = c.lasts }
end
--#end
--#end

--#if terms
--#if counter meter
-- overdraw is backends.overdraw and, of a partial charge, backends.raise. It returns how many
-- charges fit, and the value after it; nil if it is not charged. more[CUT] is what is left.
local function overdraw(more, v, f, by, byf, den, max, maxf, times)
  local admitted, w, g = times
  if more[OVERDRAWS] > 0 then
    w, g = plus(v, f, more[UNIT], more[UNITF], den)
    if max < w or max == w and maxf < g then
      if more[OVERDRAWS] == RESERVES then return nil, v, f end
      admitted = 0
    end
    max, maxf = plus(max, maxf, more[DEBT], more[DEBTF], den)
  end
  if max < v or max == v and maxf < f then max, maxf = v, f end
  w, g = plus(v, f, by, byf, den)
  if max < w or max == w and maxf < g then
    more[CUT], more[CUTF] = minus(w, g, max, maxf, den)
    return admitted, max, maxf
  end
  return admitted, w, g
end
--#end
--#end

--#if counter
local function counter(more, key, _, span, way, forced, now, by, _, _, max, _, least, _, times, num, den, till, life, length, number)
  local refund, before, window, most = way == REFUND or way == UNDO, 0, nil, nil
  local found, rest, third = read(key)
  if found == BAD or span ~= SLIDING and third then return BAD end
  local present = found and (span == FIXED or now < (rest or 0))
  local v, ends, lowered = 0, till, false
  if span == SLIDING then
    present, window, before = found, number, third or 0
    if present then
      local windows = number - (rest or 0)
      lowered = windows ~= 0 and windows ~= -1
      if windows > 1 then
        present, before = false, 0
      elseif windows == 1 then
        v, before = 0, math.max(0, found)
      else
        v = found
        if windows == -1 then -- a clock that is ahead has begun the next window
          window, till, num = rest, till + length, den
          ends = till
        end
      end
    end
    -- ceil(before * num / den): long division in digits of 16 bits, so that with den <= 2^35
    -- nothing exceeds 2^52.
    local digits, count = {}, before
    repeat
      local d = math.fmod(count, 65536)
      digits[#digits + 1] = d
      count = (count - d) / 65536
    until count == 0
    local q, r = 0, 0
    for i = #digits, 1, -1 do
      local x = r * 65536 + digits[i] * num
      r = math.fmod(x, den)
      q = q * 65536 + (x - r) / den
    end
    if r > 0 then q = q + 1 end
    most, max = max, max - q
  --#if terms
  elseif span == CARRIED then
    present, window = found, more[PERIOD]
    if present then
      local windows = window - (rest or 0)
      v, lowered = found, windows ~= 0 and windows ~= -1
      if windows > 0 then
        v = math.max(0, v - windows * more[CARRY])
      elseif windows == -1 then -- a clock that is ahead has begun the next window
        window, till = rest, till + length
      end
    end
  --#end
  elseif present then
    v = found
    if span ~= FIXED then
      ends, lowered = math.min(rest, till), rest > till
    end
  end
  local admitted = 0
  if refund then
    admitted = times
    if way == UNDO and least > 0 and ends > least then by = 0 end -- of a window that is over
    if span == SLIDING and window > number then -- hits of the window before
      before = math.max(0, before - by * times)
    elseif v >= 0 then
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
      local part = math.fmod(v - max, by)
      local beyond = (v - max - part) / by
      if part > 0 then beyond = beyond + 1 end
      admitted = math.max(0, times - beyond)
    end
  --#if terms
  elseif more and more[PARTIAL] > 0 and span == SLIDING and window > number then -- as above
    admitted, before = overdraw(more, before, 0, by, 0, 1, most, 0, times)
  elseif more and more[OVERDRAWS] + more[PARTIAL] > 0 then
    admitted, v = overdraw(more, v, 0, by, 0, 1, max, 0, times)
    forced, admitted = admitted and by > 0, admitted or 0
    if v > MAX then v = MAX end
  --#end
  else
    while admitted < times and v + by <= max do
      v = v + by
      admitted = admitted + 1
    end
    if v > MAX then v = MAX end
  end
  --#if terms
  if span == CARRIED then -- this is backends.Op.CarriedUntil
    ends = till
    if v > more[CARRY] then
      local least = math.max(1, math.floor(more[CARRY] / 10))
      ends = math.min(till + math.floor((v - 1) / least) * length, now + MAX_WAIT)
    end
  end
  --#end
  if by == 0 and way ~= GRANT then return admitted, v, 0, before, ends, 0 end -- it only reads
  local charged = (admitted > 0 or forced) and (present or not refund)
  if charged and span == EVERY_HIT and way ~= GRANT and not refund then ends = till end
  if span ~= FIXED then life = ends - now end
  if charged or lowered or way == GRANT then
    write(key, life, (present or charged) and v, span ~= FIXED and (window or ends), span == SLIDING and before or nil)
  elseif found then
    keep(key, life)
  end
  return admitted, v, 0, before, ends, 0
end
--#end

--#if meter
local function meter(more, key, _, _, way, _, now, by, byf, den, max, maxf, far, farf, times, _, _, till)
  local v, f, till_ = read(key)
  if v == BAD or till_ and v >= 0 then return BAD end
  local found, lowered, credit = v, false, false -- credit is when it ends
  f = f or 0
  --#if terms
  if v and more then
    if f >= den then v, f, lowered = v + 1, 0, true end -- of another denominator
    if v > 0 then v, f = plus(v, f, more[SHIFT], more[SHIFTF], den) end
  end
  --#end
  if v then
    if v < 0 then
      if not till_ then return BAD end
      if now < till_ then v, credit = v + now, till_ end
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
  --#if terms
  elseif more and more[OVERDRAWS] + more[PARTIAL] > 0 then
    admitted, v, f = overdraw(more, v, f, by, byf, den, max, maxf, times)
    lowered, admitted = true, admitted or 0
  --#end
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
  if not lowered and admitted == 0 then
    if found then keep(key, ends - now) end
  elseif credit then
    write(key, ends - now, v - now, f, credit)
  elseif ends > now then
    local w, g = v, f
    --#if terms
    if more then w, g = minus(v, f, more[SHIFT], more[SHIFTF], den) end
    --#end
    write(key, ends - now, w, g > 0 and g)
  else
    write(key, 0, false)
  end
  return admitted, v, f, 0, ends, 0
end
--#end

--#if list
-- element is what s says, an element of a list: its date, its cost, the total and its number.
local function element(s)
  local at, cost, total, number = string.match(s, '^(%d+):(%-?%d+):(%-?%d+):?(%d*)$')
  if not at then error('FOREIGN', 0) end
  at, cost, total = tonumber(at), tonumber(cost), tonumber(total)
  if at > 2 * MAX or cost < -MAX or cost > 2 * MAX or total < -2 * MAX or total > 2 * MAX then error('FOREIGN', 0) end
  return { at = at, cost = cost, total = total, number = tonumber(number) or at }
end

local function text(e)
  local s = string.format('%.0f:%.0f:%.0f', e.at, e.cost, e.total)
  return e.number == e.at and s or string.format('%s:%.0f', s, e.number)
end

-- newest is the last element of the list l at key, or nil.
local function newest(l, key)
  local added = l.added
  if added[1] then return added[#added] end
  if l.gone + l.cut >= l.length then return l.front and l.front[#l.front] end
  if not l.tail then l.tail = element(redis.call('LINDEX', key, -1 - l.cut)) end
  return l.tail
end

-- pop removes the newest element.
local function pop(l)
  if l.added[1] then
    l.added[#l.added] = nil
  elseif l.gone + l.cut < l.length then
    l.cut, l.tail = l.cut + 1, nil
  else
    l.front[#l.front] = nil
  end
end

-- add appends an element, or adds to the newest one, e, if that is of the same part.
local function add(l, e, at, cost, number, parts)
  if parts and e and e.at == at and e.number == at and e.cost > 0 then
    pop(l)
    cost, e = e.cost + cost, { total = e.total - e.cost }
  end
  l.added[#l.added + 1] = { at = at, cost = cost, total = (e and e.total or l.base) + cost, number = number }
  l.dirty = true
end

-- save writes the list l at key, unless operations have only read it. The list is never empty in
-- between: while its slot moves to another server, commands on a key that is gone fail, and its
-- hits would be lost.
local function save(l, key)
  if not l.life then return end
  if l.dirty then
    local first, whole = 1, l.gone + l.cut >= l.length -- no stored element stays
    if l.gone == 0 and l.cut == 1 and l.added[1] then
      redis.call('LSET', key, -1, text(l.added[1]))
      first, whole = 2, false
    elseif not whole and l.gone + l.cut > 0 then
      redis.call('LTRIM', key, l.gone, -1 - l.cut)
    end
    l.renew = l.renew or whole
    if l.front and whole then
      for i = 1, #l.front do redis.call('RPUSH', key, text(l.front[i])) end
    elseif l.front then
      for i = #l.front, 1, -1 do redis.call('LPUSH', key, text(l.front[i])) end
    end
    for i = first, #l.added do redis.call('RPUSH', key, text(l.added[i])) end
    if whole and l.length > 0 then redis.call('LTRIM', key, l.length, -1) end
    if newest(l, key) and (l.renew or redis.call('PTTL', key) == -1) then redis.call('PEXPIRE', key, l.life) end
  elseif l.length > 0 and redis.call('PTTL', key) == -1 then
    redis.call('PEXPIRE', key, l.life)
  end
end

-- open is a copy of the list at key: the stored elements without the oldest `gone`, which have
-- left the window, and without the newest `cut`, then `added`; and before them `front`, if
-- refunds took oldest ones. `base` is the total before them; `tail` is the newest stored element
-- that is not cut. A clock that was set back leaves elements dated after now: they
-- get the date of now. `life` is how long the key has to live, in ms, once an operation does more
-- than read; `renew`: it has to be set.
local function open(key, now, window, date)
  local length = redis.pcall('LLEN', key)
  if type(length) == 'table' then
    if string.find(length.err, 'WRONGTYPE', 1, true) then error('FOREIGN', 0) end
    error(length.err, 0)
  end
  local l = { length = length, gone = 0, cut = 0, base = 0, added = {}, dirty = false, life = false, renew = false, tail = nil }
  -- The first element that counts is between l.gone and last: strides double from
  -- the head on, because few have gone since the last charge, and halve back.
  local last, stride = length, 1
  while l.gone < last do
    local i = math.min(l.gone + stride, last) - 1
    local e = element(redis.call('LINDEX', key, i))
    if i == length - 1 then l.tail = e end
    if e.at > now - window then
      last, stride, l.base = i, math.ceil((i - l.gone) / 2), e.total - e.cost
    else
      l.gone, stride = i + 1, 2 * stride
    end
  end
  l.dirty = l.gone > 0
  local late
  while l.gone + l.cut < length do
    if not l.tail then l.tail = element(redis.call('LINDEX', key, -1 - l.cut)) end
    if l.tail.at <= now then break end
    late = late or {}
    l.cut, late[#late + 1], l.tail = l.cut + 1, l.tail, nil
  end
  if late then
    l.dirty, l.renew = true, true
    for i = #late, 1, -1 do
      late[i].at = date
      l.added[#l.added + 1] = late[i]
    end
  end
  if l.base > MAX then -- totals begin anew, before they are above 2 * MAX
    local all = {}
    for i, s in ipairs(redis.call('LRANGE', key, l.gone, -1 - l.cut)) do all[i] = element(s) end
    for _, e in ipairs(l.added) do all[#all + 1] = e end
    for _, e in ipairs(all) do e.total = e.total - l.base end
    l.added, l.cut, l.base, l.tail, l.dirty = all, length - l.gone, 0, nil, true
  end
  return l
end

--#if together
local load = open
function open(key, now, window, date)
  local l = lists[key]
  note(lists, key)
  lists[key] = not l and load(key, now, window, date) or undone and copy(l) or l
  return lists[key]
end
--#end

-- change is the step, and raises FOREIGN if the key does not hold a list.
local function change(more, key, way, now, by, max, least, times, window)
  local date, number = more and more[DATE] or now, more and more[NUMBER] or now
  local l = open(key, now, window, date)
  local admitted, e = times, newest(l, key)
  local sum = e and e.total - l.base or 0
  -- Charges set the lifetime once in each eighth of the window, for an eighth longer, or once in
  -- each part.
  local slack, fresh = window / 8, e and way == 0
  if fresh then fresh = math.floor(e.at / slack) == math.floor(now / slack) end
  --#if terms
  if more then slack = more[SLACK] + slack end
  if more and more[PARTS] == 1 then fresh = e and way == 0 and e.at == date end
  --#end
  if way == REFUND or way == UNDO then
    local cost = by * times
    if way == REFUND then cost = math.min(cost, math.max(sum, 0)) end
    --#if terms
    if cost > 0 and more and (more[ENDS] > 0 or more[OLDEST] == 1 and way == REFUND) then
      -- It takes cost off the oldest elements that are no grants, those of reservations last, or
      -- off those of one number, which got no date after more[UNTIL]. Totals tell sums, so the
      -- elements before them or those after them are written anew, whichever are fewer.
      local of = more[ENDS]
      local stored = l.length - l.gone - l.cut
      if l.front or l.added[1] then -- by operations before this one
        local all = l.front or {}
        if stored > 0 then
          for _, s in ipairs(redis.call('LRANGE', key, l.gone, -1 - l.cut)) do all[#all + 1] = element(s) end
        end
        for _, a in ipairs(l.added) do all[#all + 1] = a end
        l.front, l.added, l.cut, l.tail, stored = nil, all, l.length - l.gone, nil, 0
      end
      local n, first, last, left, took = stored + #l.added, 1, 0, cost, {}
      local function at(i) return l.added[i] or element(redis.call('LINDEX', key, l.gone + i - 1)) end
      local function take(i, reserved)
        local a = at(i)
        if a.cost > 0 and (of == 0 and (a.number >= MAX) == reserved or of > 0 and a.number == of) then
          took[i] = math.min(a.cost, left)
          left = left - took[i]
        end
      end
      if of > 0 then
        local past, latest = n + 1, more[UNTIL] > 0 and more[UNTIL] or of
        while first < past do
          local middle = math.floor((first + past) / 2)
          if at(middle).at <= latest then first = middle + 1 else past = middle end
        end
        last = first - 1
        while first > 1 and left > 0 do
          first = first - 1
          take(first)
        end
      end
      for i = 1, of == 0 and 2 * n or 0 do
        if left == 0 then break end
        last = math.min(i, n)
        take(i > n and i - n or i, i > n)
      end
      local function between(from, to)
        local found = {}
        if l.added[1] then
          for i = from, to do found[#found + 1] = l.added[i] end
        elseif from <= to then
          for i, s in ipairs(redis.call('LRANGE', key, l.gone + from - 1, l.gone + to - 1)) do found[i] = element(s) end
        end
        return found
      end
      local older, from, to, rest = stored > 0 and last <= n - first, first, n, {}
      if older then
        from, to = 1, last
      elseif stored == 0 then
        rest = between(1, first - 1)
      end
      local taken, off = 0, older and cost - left or 0
      for i, a in ipairs(between(from, to)) do
        local part = took[from + i - 1] or 0
        a.cost, taken = a.cost - part, taken + part
        if part > 0 and of > 0 and a.number >= MAX then a.number = a.at end
        a.total = a.total + off - taken
        if a.cost ~= 0 then rest[#rest + 1] = a end
      end
      if older then
        l.gone, l.base, l.front = l.gone + last, l.base + off, rest
      else
        l.cut, l.added, l.tail = l.length - l.gone - (stored > 0 and first - 1 or 0), rest, nil
      end
      l.dirty, cost = true, 0
    end
    --#end
    -- It takes cost off the newest elements that are no grants, those of reservations last.
    if cost > 0 then
      local aside = {}
      while e and cost > 0 do
        pop(l)
        if e.cost < 0 or e.number >= MAX then
          aside[#aside + 1] = e
        else
          if e.cost > cost then add(l, newest(l, key), e.at, e.cost - cost, e.number) end
          cost = cost - e.cost
        end
        e = newest(l, key)
      end
      for _, a in ipairs(aside) do
        local part = math.max(0, math.min(a.cost, cost))
        a.cost, cost = a.cost - part, cost - part
      end
      for i = #aside, 1, -1 do
        local a = aside[i]
        if a.cost ~= 0 then add(l, newest(l, key), a.at, a.cost, a.number) end
      end
      l.dirty = true
    end
  elseif way == GRANT then
    local after = math.max(math.min(sum, max) - by, math.min(sum, least))
    if after < sum then add(l, e, date, after - sum, date) end
  --#if terms
  elseif more and more[PARTIAL] == 1 then
    local part = math.max(0, math.min(by, max - sum))
    if part > 0 then add(l, e, date, part, number, more[PARTS] == 1) end
    more[CUT] = by - part
  --#end
  else
    if sum + by * times > max then
      admitted = 0
      if by > 0 and max > sum then admitted = math.floor((max - sum) / by) end
    end
    if by * admitted > 0 then add(l, e, date, by * admitted, number, more and more[PARTS] == 1) end
  end
  e = newest(l, key)
  sum = e and e.total - l.base or 0
  local ends, retry = e and e.at + window or now, now
  if by > 0 or way == GRANT then
    l.life = lifetime(ends - now + slack)
    l.renew = l.renew or not fresh
  end
  if admitted < times then -- retry is when enough of the oldest costs have left for one more `by`
    retry = NEVER
    local gone = sum + by - max + l.base -- the total that has to leave
    local stored = by > max and 0 or l.length - l.cut
    local done
    local function leaves(elements)
      for _, a in ipairs(elements or {}) do
        done = done or retry ~= NEVER and retry ~= a.at + window
        if not done then retry = a.total >= gone and a.at + window or NEVER end -- a grant may leave with a cost
      end
    end
    if by <= max then leaves(l.front) end
    for first = l.gone, stored - 1, 64 do
      if done then break end
      local found = redis.call('LRANGE', key, first, math.min(first + 63, stored - 1))
      for i, s in ipairs(found) do found[i] = element(s) end
      leaves(found)
    end
    if by <= max then leaves(l.added) end
  end
  --#if each
  save(l, key)
  --#end
  return admitted, sum, 0, 0, ends, retry
end

local function list(more, key, _, _, way, _, now, by, _, _, max, _, least, _, times, _, _, _, _, window)
  local ok, admitted, whole, frac, before, ends, retry = pcall(change, more, key, way, now, by, max, least, times, window)
  if ok then return admitted, whole, frac, before, ends, retry end
  if admitted ~= 'FOREIGN' then error(admitted, 0) end
  --#if together
  lists[key] = nil
  --#end
  return BAD
end
--#end

--#if hold
-- Records of reservations, by key: by, byf, mark and number, unless it is settled, and ends, unless
-- there is none.
local records = {}

-- place is the entry for ends and mark in back (Lapsing.Back): where it begins and ends, its by and
-- byf; or nil.
local function place(back, ends, mark)
  local from, to = string.find(back, string.format(';%.0f:%.0f:', ends, mark), 1, true)
  if not from then return end
  local _, till, by, byf = string.find(back, '^(%d+):(%d+)', to + 1)
  return from, till, tonumber(by), tonumber(byf)
end

--#if lapse
-- add is back with by more to come back at ends.
local function add(back, ends, mark, by, byf, den)
  local from, to, w, g = place(back, ends, mark)
  if from then
    by, byf = plus(w, g, by, byf, den)
  else
    from, to = #back + 1, #back
    if tonumber(string.match(back, ';(%d+):[^;]*$') or 0) >= ends then
      for at, e, m in string.gmatch(back, '();(%d+):(%d+)') do
        e = tonumber(e)
        if e > ends or e == ends and tonumber(m) > mark then
          from, to = at, at - 1
          break
        end
      end
    end
  end
  return string.sub(back, 1, from - 1) .. string.format(';%.0f:%.0f:%.0f:%.0f', ends, mark, by, byf) .. string.sub(back, to + 1)
end

--#end
-- take is back without by that was to come back at ends.
local function take(back, ends, mark, by, byf, den)
  local from, to, w, g = place(back, ends, mark)
  if not from then return back end
  by, byf = minus(w, g, by, byf, den)
  local entry = (by > 0 or by == 0 and byf > 0) and string.format(';%.0f:%.0f:%.0f:%.0f', ends, mark, by, byf) or ''
  return string.sub(back, 1, from - 1) .. entry .. string.sub(back, to + 1)
end
--#end

--#if together
local tried = {}   -- of each operation, what its trial found
local charges = {} -- how often each operation is charged, once that is known

-- settle says how often operation i is charged if its descriptor passes, as backends.Batch.Charges
-- does, and whether that is as it was tried.
local function settle(i, passes)
  local op = tried[i]
  if op.maker and charges[op.maker] == 0 then op.kept, op.same = op.over, op.debt end -- as backends.Batch.settles
  charges[i] = (op.kept or passes) and op.charged or 0
  return charges[i] == op.charged
end
--#end
local ops, out = ARGV[1], nil
repeat
  local at, k, n = 1, 0, 0
  out = { false }
  --#if together
  local head, headAt, headK = 1, 1, 0 -- where the descriptor begins
  --#end
  while at <= #ops do
    local kind, way, role, group, hasTerms, holds, now, by, max, far, times
    local span, forced, byf, den, maxf, farf, num, wden, till, life, window, number = 0, false, 0, 1, 0, 0
    kind, way, role, group, hasTerms, holds, now, by, max, far, times, at = struct.unpack('<BBBBBBddddd', ops, at)
    k, n = k + 1, n + 1
    local key, step, more = KEYS[k], nil, nil
    --#if together
    if n == head and group > 0 then undone = {} end
    --#end
    --#if counter
    if kind == COUNTER then
      step = counter
      span, forced, till, life, window, at = struct.unpack('<BBddd', ops, at)
      forced = forced == 1
      if span == SLIDING then number, num, wden, at = struct.unpack('<ddd', ops, at) end
    end
    --#end
    --#if meter
    if kind == METER then
      step = meter
      byf, den, maxf, farf, till, at = struct.unpack('<ddddd', ops, at)
    end
    --#end
    --#if list
    if kind == LIST then
      step = list
      window, at = struct.unpack('<d', ops, at)
    end
    --#end
    --#if terms
    local state, held, heldf = 0, 0, 0 -- backends.Account
    local maker -- the operation of the batch that has made the reservation
    if hasTerms == 1 then
      more = { struct.unpack('<BBBBdddddd', ops, at) }
      at, more[CUT] = more[CUT], 0
    elseif hasTerms == NO_TERMS then
      more = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
    end
    local debt = more and more[OVERDRAWS] > 0 and way == 0
    --#end
    local openKey = key -- the key of the cell's open reservations
    if kind == LIST and (holds == 1 or way == RESET) then
      k = k + 1
      openKey = KEYS[k]
    end
    --#if hold
    local id, returns, known, mark, last, fresh -- id is the key of the record
    if holds == 1 then
      id, returns, known, mark, last, fresh, at = struct.unpack('<BBBddd', ops, at)
      k = k + id
      id = id == 1 and KEYS[k]
      if way == GRANT then id = false end
    end
    --#end
    --#if together
    if charges[n] and not (tried[n].same and charges[n] > 0) then
      max, times, forced = math.huge, charges[n], false
      --#if terms
      if more and times > 0 then more[OVERDRAWS] = 0 end
      --#end
      if times == 0 then -- as backends.Batch.Settled
        max, times = -math.huge, 1
        if way == REFUND or way == UNDO then
          by, byf, way = 0, 0, 0
          --#if terms
          if more then max, more[OVERDRAWS], more[PARTIAL] = math.huge, 0, 0 end
          --#end
          --#if hold
          id = false
          --#end
        end
      end
    end
    --#end
    local admitted, whole, frac, before, ends, retry
    if way == RESET then
      redis.call('DEL', key, openKey)
      --#if together hold
      copies[key] = nil -- also the changes of earlier operations
      --#if together
      lists[key] = nil
      --#end
      --#if counter meter hold
      copies[openKey], stored[openKey] = nil, { value = false, rest = false }
      --#end
      --#end
      admitted, whole, ends, retry = times, kind == METER and now or 0, kind == COUNTER and till or now, now
    else
      local on, cost, costf = way, by, byf -- what the cell is charged
      --#if hold
      local found, back, to -- to is the account's state if the operation is admitted
      local rec, settled, rends, rby, rbyf, rmark, rat -- the record
      local cell, named, stays, open = nil, 0, 0, '' -- the cell and its backends.Lapsing
      local reopened = false -- that has changed
      local dates = more and more[ENDS]
      if holds == 1 then
        if read(openKey) == BAD then admitted = BAD end
        cell = copies[openKey] or stored[openKey]
        if cell.open then
          named, stays, open = string.match(cell.open, '^;(%d+):(%d+)(.*)$')
          named, stays = tonumber(named), tonumber(stays)
        end
        --#if lapse
        while returns == 1 and not admitted do
          local _, upto, over, of, amount, part = string.find(open, '^;(%d+):(%d+):(%d+):(%d+)')
          if not upto or tonumber(over) > now then break end
          open, of, reopened = string.sub(open, upto + 1), tonumber(of), true
          if kind ~= COUNTER or of == mark then
            if kind == LIST then more[ENDS], more[UNTIL] = of, tonumber(part) end
            local far, farf = far, farf
            if way == GRANT then far, farf = more[DEBT], more[DEBTF] end -- see packTerms
            step(more, key, nil, span, REFUND, false, now, tonumber(amount), tonumber(part), den, max, maxf, far, farf, 1, num, wden, till, life, window, number)
            more[ENDS] = dates
            if kind == LIST then more[UNTIL] = 0 end
          end
        end
        --#end
        if open == '' and stays <= now and named > 0 and (id or returns == 1) then named, stays, reopened = 0, 0, true end
      end
      if id and not admitted then
        rec = records[id]
        if not rec then
          local s = redis.pcall('GET', id)
          rec = {}
          if type(s) == 'table' or s and #s % 8 > 0 then
            admitted = BAD
          elseif s and #s == 8 then
            rec = { ends = struct.unpack('<d', s) }
          elseif s then
            local w, m, e, number = struct.unpack('<dddd', s)
            rec = { by = w, byf = #s > 32 and struct.unpack('<d', s, 33) or 0, mark = m, ends = e, number = number }
          end
        end
        settled, rends, rby, rbyf, rmark, maker = not rec.by, rec.ends, rec.by, rec.byf, rec.mark, rec.maker
        if kind == LIST then rat, rbyf = rbyf, 0 end
      end
      -- This is backends.Lapsing.forgets and Record.Against.
      if id and not admitted then
        local refund = way == REFUND or way == UNDO
        found, to = rends and now < rends, 0
        if found and not settled and not (kind == COUNTER and span == FIXED and rmark ~= mark) then
          found = rec.number == named
          --#if lapse
          if found and returns == 1 then
            local _, _, w, g = place(open, rends, rmark)
            found = w and (w > rby or w == rby and g >= (rat or rbyf))
          end
          --#end
        end
        if found and known == 1 and not settled then
          if kind == COUNTER then
            found = rmark == mark or span == SLIDING and rmark >= mark - 1
          else
            found = kind == METER or (rat > 0 and rat or rmark) > now - window
          end
        end
        if not found then
          if refund then
            on, cost, costf = 0, 0, 0
          elseif known == 1 then
            to = SETTLED
          elseif by > 0 or byf > 0 then
            to = HELD
            if kind == LIST then more[NUMBER] = mark end
            if more[OVERDRAWS] == 1 then more[OVERDRAWS] = RESERVES end
          end
        elseif settled then
          to, on, cost, costf = UNCHANGED, 0, 0, 0
        else
          to, forced = SETTLED, false
          cost, costf = minus(by, byf, rby, rbyf, den)
          if refund then
            back, cost, costf = true, rby, rbyf
          elseif cost < 0 then
            back = true
            cost, costf = minus(rby, rbyf, by, byf, den)
          elseif kind == LIST or more[DEBT] == 0 and more[DEBTF] == 0 then
            more[PARTIAL] = 1
          end
          if back and kind == COUNTER and rmark ~= mark then
            on, cost, costf = 0, 0, 0
          elseif back and not refund then
            on = REFUND
          end
          if back and kind == LIST then more[ENDS], more[UNTIL] = rmark, rat end
        end
        if on == 0 and cost == 0 and costf == 0 and (to ~= 0 or refund) then
          max, maxf, more[OVERDRAWS], more[PARTIAL] = math.huge, 0, 0, 0
        end
      end
      --#end
      if not admitted then
        admitted, whole, frac, before, ends, retry =
          step(more, key, nil, span, on, forced, now, cost, costf, den, max, maxf, far, farf, times, num, wden, till, life, window, number)
      end
      --#if hold
      if dates then more[ENDS] = dates end
      if id and admitted >= 0 then -- this is backends.Record.After and Tell
        if to == HELD and admitted == 0 then to = 0 end
        if to == HELD then by, byf = minus(by, byf, more[CUT], more[CUTF] or 0, den) end
        if to == HELD and kind == LIST and mark ~= more[DATE] then byf = more[DATE] end
        state = to
        if to == SETTLED and found then
          held, heldf = rby, rbyf
          if cost == 0 and costf == 0 and not (way == REFUND or way == UNDO) and (by ~= rby or byf ~= rbyf) then -- the window is over
            more[CUT], more[CUTF] = minus(rby, rbyf, by, byf, den)
          end
        end
        if to == SETTLED or to == HELD then
          local r
          if to == HELD then
            if named == 0 then named = fresh end
            r = { by = by, byf = byf, mark = mark, ends = last, number = named, maker = n, now = now, dirty = true }
            reopened = true
            if returns == 0 then stays = math.max(stays, last) end
            --#if lapse
            if returns == 1 then open = add(open, last, mark, by, byf, den) end
            --#end
          else
            admitted = times
            r = { ends = way ~= UNDO and last or nil, maker = maker, now = now, dirty = true }
            if rby and rec.number == named and open ~= '' then
              open, reopened = take(open, rends, rmark, rby, rat or rbyf, den), true
              if open == '' and stays <= now then named = 0 end
            end
          end
          --#if together
          note(records, id)
          --#end
          records[id] = r
        elseif to == UNCHANGED then
          admitted = times
        end
      end
      if (reopened or named > 0) and admitted >= 0 then
        cell = copies[openKey] or stored[openKey]
        if reopened or cell.dirty or kind == LIST then -- the cell lives until the last of them ends
          local us, value, text = stays, cell.value, cell.open
          if open ~= '' then us = math.max(us, tonumber(string.match(open, ';(%d+):[^;]*$'))) end
          if reopened then text = named > 0 and string.format(';%.0f:%.0f', named, stays) .. open or nil end
          us = us - now
          if kind == LIST then
            value = text and 0
          else
            us = math.max(us, cell.us or 0, kind == COUNTER and span == FIXED and life or ends - now)
          end
          --#if together
          note(copies, openKey)
          cell = { rest = cell.rest, third = cell.third, dirty = cell.dirty }
          --#end
          cell.us, cell.value, cell.open, cell.dirty, cell.lasts = us, value or text and 0, text, reopened or cell.dirty, true
          copies[openKey] = cell
        end
      end
      --#end
    end
    --#if together
    if charges[n] then
      if admitted >= 0 then admitted, retry = tried[n].admitted, tried[n].retry end
    else
      local settles, same, over, made = false, false, false, nil
      --#if terms
      settles = state >= SETTLED
      made = settles and maker
      same = debt
      over = debt and (by > 0 or byf > 0) -- backends.Op.Overdraws
      --#if hold
      over = over and not (id and known == 0)
      --#end
      --#end
      forced = forced or over
      tried[n] = {
        role = role, group = group, admitted = admitted, retry = retry,
        fits = admitted == times,
        kept = settles or over or forced and admitted >= 0 and admitted < times, -- charged though it does not fit
        charged = forced and admitted >= 0 and times or math.max(0, admitted),
        same = settles or same, -- charged as it is
        over = over, debt = same,
        maker = made,
      }
    end
    --#end
    out[n] = struct.pack('<dddddd', admitted, whole or 0, frac or 0, before or 0, ends or 0, retry or 0)
    --#if terms
    if more then out[n] = out[n] .. struct.pack('<ddddd', state, held, heldf, more[CUT], more[CUTF] or 0) end
    --#end
    --#if together
    if group == 0 or at > #ops or string.byte(ops, at + 3) ~= group then -- its descriptor ends
      local passes, same = true, true
      for i = head, charges[n] and 0 or n do passes = passes and tried[i].fits end
      for i = head, charges[n] and 0 or n do
        tried[i].passes = passes
        same = settle(i, passes or group == 0) and same
      end
      if same then
        head, headAt, headK = n + 1, at, k
      else -- it fails: this is backends.Batch.ApplyTogether
        for i = #undone, 1, -1 do undone[i].of[undone[i].name] = undone[i].was end
        at, k, n = headAt, headK, head - 1
      end
      undone = nil
    end
    --#end
  end
  local again = false
  --#if together
  if ARGV[2] == ALL then -- this is backends.Batch.Decide
    local refused, quotas, refusals = false, 0, 0 -- if undecided operations refuse, too
    for i, op in ipairs(tried) do
      local begins = i == 1 or op.group == 0 or tried[i - 1].group ~= op.group -- a descriptor
      if begins and op.role == QUOTA then
        quotas = quotas + 1
        if not op.passes then refusals = refusals + 1 end
      elseif begins and op.role == FIRM then
        refused = refused or not op.passes
      end
    end
    if refused or quotas > 0 and refusals == quotas then
      for i in ipairs(tried) do
        local was = charges[i]
        settle(i, false)
        again = again or charges[i] ~= was
      end
    end
    if again then
      copies, lists = {}, {}
      --#if hold
      records = {}
      --#end
    end
  end
  --#end
until not again
--#if together hold
--#if counter meter hold
for key, c in pairs(copies) do
  tail, lasts = c.open, c.lasts
  if c.dirty then set(key, c.us, c.value, c.rest, c.third) else guard(key, c.us) end
end
--#end
--#if together
--#if list
for key, l in pairs(lists) do save(l, key) end
--#end
--#end
--#if hold
for key, r in pairs(records) do
  if r.dirty and not r.ends then
    redis.call('DEL', key)
  elseif r.dirty then
    local s
    if not r.by then
      s = struct.pack('<d', r.ends)
    elseif r.byf > 0 then
      s = struct.pack('<ddddd', r.by, r.mark, r.ends, r.number, r.byf)
    else
      s = struct.pack('<dddd', r.by, r.mark, r.ends, r.number)
    end
    redis.call('SET', key, s, 'PX', lifetime(r.ends - r.now))
  end
end
--#end
--#end
return out[2] and table.concat(out) or out[1]
