"""An S3-compatible server on loopback for tests: PyPI's moto, with one bucket and one user, whose signatures it checks.

    s3_server.py BUCKET

Prints "PORT ACCESS_KEY SECRET_KEY" once it serves, and ends when its standard input does.
"""

import os
import sys

# moto lets everybody in unless it is told after how many requests it checks who asks: the four below, which make the user and the bucket.
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "4"
os.environ["NO_PROXY"] = "*"  # the requests go nowhere but here, whatever proxy this machine has

import boto3
from moto.server import ThreadedMotoServer

MAY = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'


def main():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()

    def client(service):
        return boto3.client(service, endpoint_url=f"http://{host}:{port}", region_name="us-east-1", aws_access_key_id="first",
                            aws_secret_access_key="first")

    people = client("iam")
    people.create_user(UserName="atoll")
    people.put_user_policy(UserName="atoll", PolicyName="may", PolicyDocument=MAY)
    key = people.create_access_key(UserName="atoll")["AccessKey"]
    client("s3").create_bucket(Bucket=sys.argv[1])
    print(port, key["AccessKeyId"], key["SecretAccessKey"], flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
