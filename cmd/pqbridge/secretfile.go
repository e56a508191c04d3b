package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
)

// readSecret returns the text of a file that holds one secret. Editors and echo end it with
// a line break, which is not part of the secret.
func readSecret(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	secret := strings.TrimRight(string(text), "\r\n")
	switch {
	case strings.TrimSpace(secret) == "":
		return "", errors.New("the file is empty: want the secret on one line")
	case strings.ContainsAny(secret, "\r\n"):
		return "", errors.New("the file has several lines: want the secret on one line")
	}
	return secret, nil
}

// checkSecret returns why the file that a variable names cannot be used. It shows a name
// without a slash to nobody, because that may well be the secret itself.
func checkSecret(variable, path string) error {
	if path == "" {
		return nil
	}

	_, err := readSecret(path)
	switch {
	case err == nil:
		return nil
	case strings.ContainsRune(path, os.PathSeparator):
		return fileProblem(variable, path, err)
	}

	var reason *os.PathError
	if errors.As(err, &reason) {
		err = reason.Err
	}
	return fmt.Errorf("%s: %w: want the path of the file that holds the secret, not the secret", variable, err)
}

// secretFile reads a secret anew for each connection, so that it can be replaced while the
// service runs. A file that cannot be read just then leaves the secret as it was.
func secretFile(path string) func() string {
	var last atomic.Value
	last.Store("")
	return func() string {
		secret, _ := readSecret(path) // NATS refuses the old one if it has changed, and the log says so
		secret = cmp.Or(secret, last.Load().(string))
		last.Store(secret)
		return secret
	}
}
