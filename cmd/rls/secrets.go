package main

import (
	"errors"
	"fmt"
	"strings"

	"example.org/rls/pkg/reread"
	"example.org/rls/pkg/settings"
)

// password returns the function that returns "password" or "user:password" for a new
// connection: the content of the file that the setting names, or else text. It is nil
// if both are "".
func password(watch *reread.Watcher, setting, file, text string) (func() string, error) {
	if file == "" {
		if text == "" {
			return nil, nil
		}
		return func() string { return text }, nil
	}
	opened, err := secret(watch, setting, file, func(content string) (string, error) {
		content = strings.TrimRight(content, "\r\n")
		switch {
		case content == "" || strings.HasSuffix(content, ":") && strings.Count(content, ":") == 1:
			return "", errors.New("has no password: want a password, or user:password")
		case strings.ContainsAny(content, "\r\n"):
			return "", errors.New("has several lines: want one with a password, or user:password")
		}
		return content, nil
	})
	if err != nil {
		return nil, err
	}
	return opened.Now, nil
}

// xdsHeaders returns the function that returns the headers for a new stream.
func xdsHeaders(watch *reread.Watcher, x *settings.XDS) (func() map[string]string, error) {
	if x.ClientAdditionalHeadersFile == "" {
		headers, _ := settings.Headers(x.ClientAdditionalHeaders)
		return func() map[string]string { return headers }, nil
	}
	const setting = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS_FILE"
	opened, err := secret(watch, setting, x.ClientAdditionalHeadersFile, func(content string) (map[string]string, error) {
		headers, ok := settings.Headers(strings.ReplaceAll(content, "\n", ","))
		if !ok || len(headers) == 0 {
			return nil, errors.New("has no headers, or wrong ones: want " + settings.WantHeaders)
		}
		return headers, nil
	})
	if err != nil {
		return nil, err
	}
	return opened.Now, nil
}

// secret opens the file that the setting names. Its errors, and those in the log
// when the file changes, name the setting and the file.
func secret[T any](watch *reread.Watcher, setting, file string, parse func(content string) (T, error)) (*reread.Value[T], error) {
	opened, err := reread.Open(watch, setting, []string{file}, func(contents []string) (T, error) {
		value, err := parse(contents[0])
		if err != nil {
			return value, fmt.Errorf("%s %w", file, err)
		}
		return value, nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", setting, err)
	}
	return opened, nil
}
