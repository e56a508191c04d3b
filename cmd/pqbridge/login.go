package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/pqbridge/pqbridge/bridge/jetstream/leaf"
)

// Prefixes of the variables that say how to log in to NATS.
const (
	natsPrefix = "PQ_NATS_"
	leafPrefix = "PQ_JETSTREAM_LEAF_"
)

// access says how one kind of connection logs in to NATS, and which servers it trusts.
type access struct {
	Creds        string `desc:"path of a NATS credentials file"`
	Nkey         string `desc:"path of a file with an nkey seed"`
	User         string `desc:"NATS user name"`
	Password     string `desc:"NATS password"`
	PasswordFile string `split_words:"true" desc:"path of a file with the NATS password instead"`
	Token        string `desc:"NATS token"`
	TokenFile    string `split_words:"true" desc:"path of a file with the NATS token instead"`
	TLS          struct {
		CA   string `desc:"path of the CA certificates to trust, PEM; if unset, the system's"`
		Cert string `desc:"path of the TLS client certificate, PEM"`
		Key  string `desc:"path of that certificate's private key, PEM"`
	}

	prefix string // of its variables
	url    string
}

// validate returns everything that is wrong with the values, joined.
func (a *access) validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			args = append([]any{a.prefix}, args...)
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}

	const needsUser = " is set and %[1]sUSER is empty: want both or none"
	check((a.TLS.Cert == "") == (a.TLS.Key == ""),
		"%[1]sTLS_CERT is %[2]q and %[1]sTLS_KEY %[3]q: want both or none", a.TLS.Cert, a.TLS.Key)
	check(a.Password == "" || a.User != "", "%[1]sPASSWORD"+needsUser)
	check(a.PasswordFile == "" || a.User != "", "%[1]sPASSWORD_FILE"+needsUser)
	check(a.Password == "" || a.PasswordFile == "",
		"%[1]sPASSWORD and %[1]sPASSWORD_FILE are both set: want one of them")
	check(a.Token == "" || a.TokenFile == "",
		"%[1]sTOKEN and %[1]sTOKEN_FILE are both set: want one of them")
	check(a.PasswordFile+a.TokenFile == "" || !strings.Contains(a.url, "@"),
		"%[1]sURL names a user, and a file has a secret too: want the login in one of them")

	blank := func(value string) bool { return value != "" && strings.TrimSpace(value) == "" }
	const isBlank = " is blank: want a value, or leave it unset"
	check(!blank(a.User), "%[1]sUSER"+isBlank)
	check(!blank(a.Password), "%[1]sPASSWORD"+isBlank)
	check(!blank(a.Token), "%[1]sTOKEN"+isBlank)
	return errors.Join(problems...)
}

// checkFiles returns all problems of the files, joined.
func (a *access) checkFiles() error {
	var problems []error
	for _, file := range []struct {
		name, path string
		read       func(path string) error
	}{
		{"CREDS", a.Creds, readCreds},
		{"NKEY", a.Nkey, readNkey},
		{"PASSWORD_FILE", a.PasswordFile, checkSecret},
		{"TOKEN_FILE", a.TokenFile, checkSecret},
	} {
		if file.path != "" {
			err := file.read(file.path)
			problems = append(problems, secretProblem(a.prefix+file.name, file.path, err))
		}
	}

	if a.TLS.CA != "" {
		_, err := a.roots()
		problems = append(problems, err)
	}

	if a.TLS.Cert != "" && a.TLS.Key != "" { // else validate complains
		if _, err := tls.LoadX509KeyPair(a.TLS.Cert, a.TLS.Key); err != nil {
			names := fmt.Sprintf("%[1]sTLS_CERT with %[1]sTLS_KEY", a.prefix)
			err = secretProblem(names, a.TLS.Cert+" "+a.TLS.Key, err)
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

func readCreds(path string) error {
	text, err := os.ReadFile(path)
	if err == nil {
		_, err = nkeys.ParseDecoratedUserNKey(text)
	}
	return err
}

func readNkey(path string) error {
	_, err := nats.NkeyOptionFromSeed(path)
	return err
}

func checkSecret(path string) error {
	_, err := readSecret(path)
	return err
}

// roots returns the certificates to trust.
func (a *access) roots() (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	text, err := os.ReadFile(a.TLS.CA)
	if err == nil && !pool.AppendCertsFromPEM(text) {
		err = errors.New("it has no certificate: want one or more in PEM")
	}
	if err != nil {
		return nil, fmt.Errorf("%sTLS_CA %s: %w", a.prefix, a.TLS.CA, err)
	}
	return pool, nil
}

func (a *access) login() leaf.Login {
	return leaf.Login{
		User: a.User, Password: a.Password, PasswordFile: a.PasswordFile,
		Token: a.Token, TokenFile: a.TokenFile, NkeyFile: a.Nkey, CredsFile: a.Creds,
	}
}

// tls returns the configuration for TLS of one connection, from the files as they are now.
func (a *access) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if a.TLS.CA != "" {
		t.RootCAs, err = a.roots()
	}
	if a.TLS.Cert != "" {
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(a.TLS.Cert, a.TLS.Key)
			return &pair, err
		}
	}
	return t, err
}

// secretProblem returns err with the name of the variable and the path of its file, or nil. It
// shows the value only if that is a path, because the value may be the secret itself.
func secretProblem(name, path string, err error) error {
	if err == nil {
		return nil
	}
	if strings.ContainsRune(path, os.PathSeparator) && !strings.Contains(path, "-----BEGIN") {
		return fmt.Errorf("%s %s: %w", name, path, err)
	}
	if reason, ok := errors.AsType[*os.PathError](err); ok {
		err = reason.Err
	}
	return fmt.Errorf("%s: %w: want the path of the file that holds the secret, not the secret",
		name, err)
}

// readSecret returns the secret in a file. The line break that editors and echo append is not part
// of it.
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

// secretFile returns a function that reads a secret, for each connection, so that the file may be
// replaced while the service runs. If the file cannot be read, it returns the last secret.
func secretFile(path string) func() string {
	var last atomic.Value
	last.Store("")
	return func() string {
		secret, _ := readSecret(path) // if the secret has changed, NATS refuses the old one
		secret = cmp.Or(secret, last.Load().(string))
		last.Store(secret)
		return secret
	}
}
