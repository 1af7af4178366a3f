package descriptors

// AppendID appends to dst the readable name of whom a limit counts, as in
// bench|user=v0-12, and returns it. Different (domain, entries, shared) never
// give the same name, whatever bytes they hold: every byte that is not safe in
// a key of any store, or has a meaning here, is written as %XX.
//
// A non-empty shared[i] stands in place of the value of entries[i]; its '*'
// are kept, which no value's are. It does not allocate where dst has room.
func AppendID(dst []byte, domain string, entries []Entry, shared []string) []byte {
	dst = appendEscaped(dst, domain, false)
	for i, e := range entries {
		dst = append(dst, '|')
		dst = appendEscaped(dst, e.Key, false)
		if i < len(shared) && shared[i] != "" {
			dst = append(dst, '=')
			dst = appendEscaped(dst, shared[i], true)
			continue
		}
		if e.Value != "" {
			dst = append(dst, '=')
			dst = appendEscaped(dst, e.Value, false)
		}
	}
	return dst
}

// AppendRatelimitID is AppendID in the words of envoyproxy/ratelimit, whose
// counters it finds: domain_key_value_. Nothing is escaped there, so different
// callers may have the same name.
func AppendRatelimitID(dst []byte, domain string, entries []Entry, shared []string) []byte {
	dst = append(append(dst, domain...), '_')
	for i, e := range entries {
		value := e.Value
		if i < len(shared) && shared[i] != "" {
			value = shared[i]
		}
		dst = append(append(dst, e.Key...), '_')
		dst = append(append(dst, value...), '_')
	}
	return dst
}

func appendEscaped(dst []byte, s string, pattern bool) []byte {
	const hex = "0123456789ABCDEF"
	for i := 0; i < len(s); i++ {
		c := s[i]
		if safe(c) || c == '*' && pattern {
			dst = append(dst, c)
			continue
		}
		dst = append(dst, '%', hex[c>>4], hex[c&15])
	}
	return dst
}

// safe bytes stand for themselves: printable ASCII but for what separates or
// escapes in an ID, marks a pattern, or means something to a store ({ and }
// are Redis Cluster's hash tag).
func safe(c byte) bool {
	switch c {
	case '%', '|', '=', '{', '}', '*':
		return false
	}
	return c > ' ' && c < 0x7f
}
