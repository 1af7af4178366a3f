package descriptors

import "strings"

// place is where in a rule file a mapping stands.
type place uint8

const (
	inRoot place = 1 << iota
	inDescriptor
	inRateLimit
	inReplaces
	anywhere place = 1<<iota - 1
)

var placeNames = map[place]string{
	inRoot:       "the top of the file",
	inDescriptor: "a descriptor",
	inRateLimit:  "rate_limit",
	inReplaces:   "replaces",
}

// key is a key of the rule language.
type key uint8

const (
	keyDomain key = iota
	keyDescriptors
	keyCharge
	keyKey
	keyValue
	keyRateLimit
	keyRateLimits
	keyShadowMode
	keyQuotaMode
	keyDetailedMetric
	keyValueToMetric
	keyShareThreshold
	keyMetadata
	keyUnit
	keyRequestsPerUnit
	keyUnlimited
	keyName
	keyReplaces
	keyStrategy
	keyBurst
	keyUnitMultiplier
	keyWindow
	keyExtend
	keyMaxDelay
	keyCount
)

// keys says where each key means something, and whether it is ours alone: what
// envoyproxy/ratelimit knows but does not read in some place is ignored there,
// what it does not know is an error.
var keys = [keyCount]struct {
	name   string
	places place
	ours   bool
}{
	keyDomain:          {"domain", inRoot, false},
	keyDescriptors:     {"descriptors", inRoot | inDescriptor, false},
	keyCharge:          {"charge", inRoot, true},
	keyKey:             {"key", inDescriptor, false},
	keyValue:           {"value", inDescriptor, false},
	keyRateLimit:       {"rate_limit", inDescriptor, false},
	keyRateLimits:      {"rate_limits", inDescriptor, true},
	keyShadowMode:      {"shadow_mode", inDescriptor, false},
	keyQuotaMode:       {"quota_mode", inDescriptor, false},
	keyDetailedMetric:  {"detailed_metric", inDescriptor, false},
	keyValueToMetric:   {"value_to_metric", inDescriptor, false},
	keyShareThreshold:  {"share_threshold", inDescriptor, false},
	keyMetadata:        {"metadata", inDescriptor, false},
	keyUnit:            {"unit", inRateLimit, false},
	keyRequestsPerUnit: {"requests_per_unit", inRateLimit, false},
	keyUnlimited:       {"unlimited", inRateLimit, false},
	keyName:            {"name", inRateLimit | inReplaces, false},
	keyReplaces:        {"replaces", inRateLimit, false},
	keyStrategy:        {"strategy", inRateLimit, true},
	keyBurst:           {"burst", inRateLimit, true},
	keyUnitMultiplier:  {"unit_multiplier", inRateLimit, true},
	keyWindow:          {"window", inRateLimit, true},
	keyExtend:          {"extend", inRateLimit, true},
	keyMaxDelay:        {"max_delay", inRateLimit, true},
}

var keysByName = func() map[string]key {
	m := make(map[string]key, keyCount)
	for k := range keyCount {
		m[keys[k].name] = k
	}
	return m
}()

func (k key) String() string { return keys[k].name }

// home names the places in which k means something.
func (k key) home() string {
	var names []string
	for p := inRoot; p <= inReplaces; p <<= 1 {
		if keys[k].places&p != 0 {
			names = append(names, placeNames[p])
		}
	}
	return strings.Join(names, " or ")
}

// unknownKey is the message about a key that does not exist.
func unknownKey(name string, where place) string {
	var here, anywhere []string
	for k := range keyCount {
		anywhere = append(anywhere, keys[k].name)
		if keys[k].places&where != 0 {
			here = append(here, keys[k].name)
		}
	}
	if s := suggest(name, here); s != "" {
		return "unknown key" + s
	}
	if s := suggest(name, anywhere); s != "" {
		return "unknown key" + s
	}
	if len(here) == 0 {
		return "unknown key"
	}
	return "unknown key; known here: " + strings.Join(here, ", ")
}

// suggest is `; did you mean "…"?` with the known word nearest to word, or ""
// when none is near.
func suggest(word string, known []string) string {
	const maxLen = 64 // longer words are no typing mistakes
	best, nearest := 3, ""
	if len(word) > maxLen {
		return ""
	}
	for _, k := range known {
		if d := distance(strings.ToLower(word), k); d < best && d < len(k) && d < len(word) {
			best, nearest = d, k
		}
	}
	if nearest == "" {
		return ""
	}
	return `; did you mean "` + nearest + `"?`
}

// distance counts the insertions, deletions, substitutions and swaps of
// neighbours that turn a into b (optimal string alignment).
func distance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range cur {
		cur[j] = j
	}
	for i := 1; i <= len(a); i++ {
		prev2, prev, cur = prev, cur, prev2
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			change := prev[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			cur[j] = min(change, prev[j]+1, cur[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
	}
	return cur[len(b)]
}
