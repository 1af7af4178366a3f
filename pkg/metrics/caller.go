package metrics

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"hash/fnv"
	"log/slog"

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

// callerLog writes lines about callers and their limits.
type callerLog struct {
	hash    callerHash
	entries bool // in clear text, in place of the hash
	log     *slog.Logger
}

// write writes a line about the caller of v.
func (l *callerLog) write(message string, o *service.Observation, v *service.Verdict, attrs ...slog.Attr) {
	who := slog.String("key", l.hash.of(o.Domain, v))
	if l.entries {
		who = slog.Any("entries", v.Entries)
	}
	all := append([]slog.Attr{
		slog.String("domain", o.Domain), who, slog.String("rule", ruleOf(o.Domain, v)), slog.String("limit", titleOf(limitOfRule(v))),
	}, attrs...)
	l.log.LogAttrs(context.Background(), slog.LevelInfo, message, all...)
}
