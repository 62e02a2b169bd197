"""Downloads with libcurl over HTTP/3: unmodified, through the interface of curl_cffi."""

import hashlib
import json
import sys
import time

from curl_cffi import Curl, CurlError, CurlInfo, CurlOpt

address, file, authority, patience, *proxy = sys.argv[1:]
HTTP_3_ONLY, TIMED_OUT = 31, 28

hash = hashlib.sha256()
count = 0
told = 0.0


def take(chunk):
    global count, told
    hash.update(chunk)
    count += len(chunk)
    now = time.monotonic()
    if now - told > 0.1:
        told = now
        print(json.dumps({"bytes": count}), flush=True)
    return len(chunk)


curl = Curl()
curl.setopt(CurlOpt.URL, f"https://{address}/{file}".encode())
curl.setopt(CurlOpt.HTTP_VERSION, HTTP_3_ONLY)
curl.setopt(CurlOpt.CAINFO, authority.encode())
curl.setopt(CurlOpt.TIMEOUT_MS, int(float(patience) * 1000))
curl.setopt(CurlOpt.WRITEFUNCTION, take)
if proxy:
    curl.setopt(CurlOpt.PROXY, proxy[0].encode())
begun = time.monotonic()
partial = False
try:
    curl.perform()
except CurlError as error:
    if error.code != TIMED_OUT:
        sys.exit(str(error))
    partial = True
seconds = time.monotonic() - begun
status = curl.getinfo(CurlInfo.RESPONSE_CODE)
print(json.dumps({"bytes": count, "sha256": hash.hexdigest(), "seconds": seconds, "status": status, "partial": partial}))
