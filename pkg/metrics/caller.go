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

// callerOf appends the name of the caller whom the limit of a verdict counts.
func callerOf(dst []byte, domain string, v *service.Verdict) []byte {
	var shared []descriptors.Entry
	if !v.Override {
		shared = v.Rule.Shared
	}
	return descriptors.AppendID(dst, domain, v.Entries, shared)
}
