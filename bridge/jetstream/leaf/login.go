package leaf

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
)

// Login is one way to log in; the zero Login is none. Files are read at each connect.
type Login struct {
	User, Password string
	PasswordFile   string // in place of Password
	Token          string
	TokenFile      string
	NkeyFile       string // a user's seed
	CredsFile      string // a user's JWT and seed
}

// LoginOf returns the login in a URL: user and password, a token alone, or none.
func LoginOf(u *url.URL) Login {
	if u.User == nil {
		return Login{}
	}
	password, ok := u.User.Password()
	if !ok {
		return Login{Token: u.User.Username()}
	}
	return Login{User: u.User.Username(), Password: password}
}

// of returns the login, or the login in a URL if there is no other.
func (l Login) of(u *url.URL) Login {
	if l != (Login{}) {
		return l
	}
	return LoginOf(u)
}

// String names the way to log in, without secrets.
func (l Login) String() string {
	switch {
	case l.User != "":
		return fmt.Sprintf("user %q", l.User)
	case l.Token+l.TokenFile != "":
		return "a token"
	case l.NkeyFile != "":
		return "the nkey in " + l.NkeyFile
	case l.CredsFile != "":
		return "the credentials in " + l.CredsFile
	}

	return "no login"
}

// connect is what a leaf node says of itself in CONNECT. It leaves out compression, so that the
// server does not expect it, and "lang", which would make it a client.
type connect struct {
	Version string `json:"version"`
	Name    string `json:"name"`
	ID      string `json:"server_id"`
	Cluster string `json:"cluster"`
	// The server replaces a connection with the same name, cluster and remote account.
	RemoteAccount string `json:"remote_account"`
	Headers       bool   `json:"headers"`
	TLSRequired   bool   `json:"tls_required"`

	User     string `json:"user,omitempty"`
	Password string `json:"pass,omitempty"`
	Token    string `json:"auth_token,omitempty"`
	Nkey     string `json:"nkey,omitempty"`
	JWT      string `json:"jwt,omitempty"`
	Sig      string `json:"sig,omitempty"`
}

// logIn adds the login to a CONNECT. The nonce is the server's.
func (c *connect) logIn(l Login, nonce string) error {
	c.User, c.Password, c.Token = l.User, l.Password, l.Token
	err := errors.Join(readSecret(l.PasswordFile, &c.Password), readSecret(l.TokenFile, &c.Token))
	if err != nil {
		return err
	}
	if l.NkeyFile+l.CredsFile == "" {
		return nil
	}

	// nats.go reads both kinds of files, and signs the nonce.
	option, err := nats.UserCredentials(l.CredsFile), error(nil)
	if l.NkeyFile != "" {
		option, err = nats.NkeyOptionFromSeed(l.NkeyFile)
	}
	var of nats.Options
	if err == nil {
		err = option(&of)
	}
	if err == nil && of.UserJWT != nil {
		c.JWT, err = of.UserJWT()
	}
	var signature []byte
	if err == nil {
		signature, err = of.SignatureCB([]byte(nonce))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", l.NkeyFile+l.CredsFile, err)
	}

	c.Nkey, c.Sig = of.Nkey, base64.RawURLEncoding.EncodeToString(signature)
	return nil
}

// readSecret reads a file, if there is one.
func readSecret(file string, to *string) error {
	if file == "" {
		return nil
	}
	text, err := os.ReadFile(file)
	*to = strings.TrimRight(string(text), "\r\n")
	return err
}
