-- Lists: backends.Log.Step.
--
-- A list has elements "at:cost:total", total being the sum of the costs up to it, so that a sum is
-- one subtraction, or "at:cost:total:number" if their backends.Cost.Number is not at. A grant has a
-- negative cost.
--
-- Few elements of a list are read. A loaded list l has `length` stored ones, of which l[i] is the one
-- at place i once it has been read. Those from `low` to `high` count. Those up to `left`, and those
-- from `right` on, are not as they are stored. `base` is the total before the first one. `life` is
-- how long the key has to live, in ms, once an operation does more than read; `renew`: it has to be
-- set. Elements are never changed, but replaced, so that a copy of l needs none of them.

-- element is l[i], whose text is s if that has been read.
local function element(l, i, s)
  local e = l[i]
  if e then return e end
  s = s or redis.call('LINDEX', l.key, i - 1)
  local at, cost, total, number = string.match(s, '^(%d+):(%-?%d+):(%-?%d+):?(%d*)$')
  at, cost, total, number = tonumber(at), tonumber(cost), tonumber(total), tonumber(number)
  local most = 2 * MAX_VALUE
  if not at or at > most or cost < -MAX_VALUE or cost > most or math.abs(total) > most then error('FOREIGN', 0) end
  l[i] = { at = at, cost = cost, total = total, number = number or at }
  return l[i]
end

-- fetch reads the elements from one place to another.
local function fetch(l, from, to)
  while l[from] do from = from + 1 end
  if from > math.min(to, l.length) then return end
  for i, s in ipairs(redis.call('LRANGE', l.key, from - 1, to - 1)) do element(l, from + i - 1, s) end
end

-- storeList writes the list l. The list is never empty in between: while its slot moves to another
-- server, commands on a key that is gone fail, and its hits would be lost.
function storeList(key, l)
  local length, low, high, i = l.length, l.low, l.high, l.low
  if low > high then return redis.call('DEL', key) end
  while i <= high do
    if i > l.left then i = math.max(i, l.right) end
    local e = i <= high and l[i]
    if e then
      local s = string.format('%.0f:%.0f:%.0f', e.at, e.cost, e.total)
      if e.number ~= e.at then s = string.format('%s:%.0f', s, e.number) end
      if i > length then redis.call('RPUSH', key, s) else redis.call('LSET', key, i - 1, s) end
    end
    i = i + 1
  end
  local gone = math.min(low - 1, length) -- others before low were never stored
  if gone > 0 or high < length then redis.call('LTRIM', key, gone, high < length and high - 1 or -1) end
  local changed = l.left > 0 or l.right <= length or high > length
  if changed and l.renew or redis.call('PTTL', key) == -1 then redis.call('PEXPIRE', key, l.life) end
end

-- add appends a cost, or adds it to the newest one if that is of the same part.
local function add(l, op, cost)
  if cost == 0 then return end
  local date, high, number = op[DATE], l.high, cost > 0 and (op[RECORD] or 0) > 0 and op[OWN_MARK] or op[DATE]
  local e = high >= l.low and element(l, high)
  local total = (e and e.total or l.base) + cost
  if cost > 0 and op[PARTS] == 1 and e and e.at == date and e.number == date and e.cost > 0 then
    cost = e.cost + cost
  else
    high = high + 1
  end
  l[high], l.high, l.right = { at = date, cost = cost, total = total, number = number }, high, math.min(l.right, high)
end

-- giveBack takes cost off the charges as Log.giveBack does. Totals tell sums, so the elements before
-- those that it changes or those after them are written anew, whichever are fewer.
local function giveBack(l, op, cost)
  local mark, from, to, way, passes = op[MARK], l.high, l.low, -1, 2
  if mark > 0 then -- charges of this number, which got no later date than this
    local latest, low = op.at or mark, l.low
    passes = 1
    while low <= from do
      local middle = math.floor((low + from) / 2)
      if element(l, middle).at <= latest then low = middle + 1 else from = middle - 1 end
    end
  elseif op[OLDEST] == 1 and op[VERB] == REFUND then
    from, to, way = to, from, 1
  end
  local took, first, last, older, moved = {}, l.high + 1, 0, false, 0
  for pass = 1, passes do
    for i = from, to, way do
      if cost == 0 then break end
      local e = element(l, i)
      local is = mark > 0 and e.number == mark or mark == 0 and (e.number >= MAX_VALUE) == (pass == 2)
      if e.cost > 0 and is then
        took[i] = math.min(cost, e.cost)
        cost, first, last = cost - took[i], math.min(first, i), math.max(last, i)
      end
    end
  end
  if first > last then return end
  from, to, way = first, l.high, 1
  if last - l.low < l.high - first then older, from, to, way = true, last, l.low, -1 end
  fetch(l, math.min(from, to), math.max(from, to))
  local n = from -- where the next one goes
  for i = from, to, way do
    local e, part = l[i], took[i] or 0
    if not older then moved = moved - part end
    if e.cost ~= part then
      local number = part > 0 and mark > 0 and e.number >= MAX_VALUE and e.at or e.number
      l[n], n = { at = e.at, cost = e.cost - part, total = e.total + moved, number = number }, n + way
    end
    if older then moved = moved + part end
  end
  if older then
    l.low, l.left, l.base = n + 1, math.max(l.left, last), l.base + moved
  else
    l.high, l.right = n - 1, math.min(l.right, first)
  end
end

-- change is stepList, which raises FOREIGN if the key holds something else.
local function change(op)
  local verb, now, by, times, max, window = op[VERB], op[NOW], op[BY], op[TIMES], op[MAX], op[WINDOW]
  local key = KEYS[op[KEY]]
  local l = loaded[key]
  if not l then
    local length = redis.pcall('LLEN', key)
    local err = type(length) == 'table' and length.err
    if err then error(string.find(err, 'WRONGTYPE', 1, true) and 'FOREIGN' or err, 0) end
    l = { key = key, length = length, low = 1, high = length, left = 0, right = length + 1, base = 0,
      life = false, renew = false }
    loaded[key] = l
  end
  local reads = by == 0 and verb < GRANT
  if reads then l = setmetatable({}, { __index = l }) end -- the list stays as it is
  -- It advances: the costs that have left are taken off. A clock that was set back leaves costs dated
  -- after now: they get the date of now.
  -- The first cost that counts is between low and last: strides double from the head on, because
  -- few have left since the last charge, and halve back.
  local low, last, stride = l.low, l.high + 1, 1
  while low < last do
    local i = math.min(low + stride, last) - 1
    local e = element(l, i)
    if e.at > now - window then
      last, stride, l.base = i, math.ceil((i - low) / 2), e.total - e.cost
    else
      low, stride = i + 1, 2 * stride
    end
  end
  if low > l.high then l.base = 0 end
  l.low, l.left = low, math.max(l.left, low - 1)
  for i = l.high, low, -1 do
    local e = element(l, i)
    if e.at <= now then break end
    l[i], l.renew = { at = op[DATE], cost = e.cost, total = e.total, number = e.number }, true
    l.right = math.min(l.right, i)
  end
  if l.base > MAX_VALUE and not reads then -- totals begin anew, before they are above 2 * MAX_VALUE
    fetch(l, low, l.high)
    for i = low, l.high do
      local e = l[i]
      l[i] = { at = e.at, cost = e.cost, total = e.total - l.base, number = e.number }
    end
    l.right, l.base = low, 0
  end
  local e = l.high >= l.low and element(l, l.high)
  local sum, admitted, cut = e and e.total - l.base or 0, times, 0
  -- Charges set the lifetime once in each eighth of the window, for an eighth longer, or once in
  -- each part.
  local slack, fresh = op[SLACK] + window / 8, false
  if e and verb <= FILL then
    fresh = op[PARTS] == 1 and e.at == op[DATE]
    if op[PARTS] == 0 then fresh = math.floor(e.at / slack) == math.floor(now / slack) end
  end
  if verb == REFUND or verb == UNDO then
    giveBack(l, op, verb == UNDO and by * times or math.min(by * times, math.max(sum, 0)))
  elseif verb == GRANT then
    add(l, op, math.max(math.min(sum, max) - by, math.min(sum, op[LEAST])) - sum)
  elseif verb == FILL then
    local part = math.max(0, math.min(by, max - sum))
    add(l, op, part)
    cut = by - part
  else
    if sum + by * times > max then admitted = by > 0 and max > sum and math.floor((max - sum) / by) or 0 end
    add(l, op, by * admitted)
  end
  e = l.high >= l.low and element(l, l.high)
  sum = e and e.total - l.base or 0
  local ends = e and e.at + window or now
  if by > 0 or verb == GRANT then
    l.life, l.renew = math.ceil((ends - now + slack) / 1000) + GRACE, l.renew or not fresh
  end
  local retry = admitted == times and now or NEVER
  if retry == NEVER and by <= max then -- it is when enough of the oldest costs have left for one more by
    local gone = sum + by - max + l.base -- the total that has to leave
    for i = l.low, l.high do
      if not l[i] then fetch(l, i, math.min(i + 63, l.high)) end
      local leaves = l[i].at + window
      if retry ~= NEVER and retry ~= leaves then break end
      retry = l[i].total >= gone and leaves or NEVER -- of its time: a grant may leave with a cost
    end
  end
  return admitted, sum, ends, retry, cut
end

-- stepList is step for a list.
function stepList(op)
  local ok, admitted, sum, ends, retry, cut = pcall(change, op)
  if ok then return admitted, sum, ends, 0, 0, retry, 0, 0, 0, cut, 0 end
  if admitted ~= 'FOREIGN' then error(admitted, 0) end
  loaded[KEYS[op[KEY]]] = nil
  return BAD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
end
