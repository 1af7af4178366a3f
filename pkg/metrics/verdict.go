package metrics

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"hash/fnv"

	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// decisionOf is the decision of a verdict that is decided; shadow is the mode of the process.
func decisionOf(v *service.Verdict, shadow bool) int {
	switch {
	case v.Is.Allowed:
		return allowed
	case v.Shadow || shadow:
		return shadowed
	}
	return denied
}

// limitOfRule is the limit of the rule by which a verdict was made, also if a request or a row
// brought another one in its place. It is nil if the rule has none, or no rule matched.
func limitOfRule(v *service.Verdict) *descriptors.Limit {
	l := v.Limit
	if v.Override {
		if v.Rule == nil {
			return nil
		}
		l = v.Rule.Main()
	}
	if l != nil && l.As != nil {
		return l.As
	}
	return l
}

// titleOf is the title of limitOfRule's result: callers make the amounts of overrides up.
func titleOf(l *descriptors.Limit) string {
	if l == nil {
		return ownTitle
	}
	return l.Title()
}

// callerOf appends the name of the caller whom the limit of a verdict counts.
func callerOf(dst []byte, domain string, v *service.Verdict) []byte {
	return descriptors.AppendID(dst, domain, v.Entries, v.Shared())
}

// callerHash is the secret of the HMAC that stands for a caller in log lines. Without a
// secret it is a short FNV.
type callerHash []byte

// of is the hash of the caller whom the limit of a verdict counts.
func (secret callerHash) of(domain string, v *service.Verdict) string {
	var key hash.Hash = fnv.New64a()
	if len(secret) > 0 {
		key = hmac.New(sha256.New, secret)
	}
	_, _ = key.Write(callerOf(nil, domain, v))
	return hex.EncodeToString(key.Sum(nil)[:8])
}
