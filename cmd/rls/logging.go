package main

import (
	"io"
	"log/slog"
	"strings"

	"example.org/rls/pkg/settings"
)

// levels are the reference's names. Nothing here is logged above error, so
// fatal and panic keep the log silent.
var levels = map[string]slog.Level{
	"trace":   slog.LevelDebug - 4,
	"debug":   slog.LevelDebug,
	"info":    slog.LevelInfo,
	"warn":    slog.LevelWarn,
	"warning": slog.LevelWarn,
	"error":   slog.LevelError,
	"fatal":   slog.LevelError + 4,
	"panic":   slog.LevelError + 8,
}

func newLogger(w io.Writer, s settings.Log) *slog.Logger {
	options := &slog.HandlerOptions{Level: levels[s.Level], ReplaceAttr: lowerLevel}
	if s.Format == "json" {
		options.ReplaceAttr = referenceKeys
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

func lowerLevel(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.LevelKey {
		a.Value = slog.StringValue(strings.ToLower(a.Value.String()))
	}
	return a
}

// referenceKeys names what every JSON line has as the reference does, for
// those who collect its logs.
func referenceKeys(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 {
		switch a.Key {
		case slog.TimeKey:
			a.Key = "@timestamp"
		case slog.MessageKey:
			a.Key = "@message"
		}
	}
	return lowerLevel(groups, a)
}
