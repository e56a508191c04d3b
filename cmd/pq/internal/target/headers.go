package target

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/pqbridge/pqbridge/subjects"
)

// Header returns a header that somebody has typed, as NAME:VALUE.
func Header(text string) (name, value string, err error) {
	name, value, ok := strings.Cut(text, ":")
	name, value = strings.TrimSpace(name), strings.TrimSpace(value)
	switch {
	case !ok || name == "":
		return "", "", fmt.Errorf("a header is %.80q: want Name: value", text)
	case strings.ContainsAny(value, "\r\n"):
		return "", "", fmt.Errorf("a header is %.80q: want one line", text)
	}
	return name, value, nil
}

// Headers returns the headers that somebody has typed, as NAME:VALUE.
func Headers(texts []string) (nats.Header, error) {
	headers := nats.Header{}
	for _, text := range texts {
		name, value, err := Header(text)
		if err != nil {
			return nil, err
		}
		headers[name] = append(headers[name], value)
	}
	return headers, subjects.CheckHeaders(headers)
}
